"""Names and addresses of machines, as people write them."""

import pytest

from fova.errors import FovaError
from fova.network.addresses import insist_on_server, is_host, with_port


@pytest.mark.parametrize("host", ["fl.example.org", "fl-1", "my_host", "10.0.0.7", "::1", "2001:db8::7", "a1.b2"])
def test_a_name_or_an_address(host):
    assert is_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        " ",
        "a b",
        "a\n",
        "a\0b",
        "10.0.0.7:8443",
        "https://fl",
        "[::1]",
        "fe80::1%eth0",
        "-x",
        "--insecure",
        "a..b",
        "*",
        "a,b",
        "256.1.1.1",
        "1",
        "0x7f.1",
        "höst",
        "user@host",
        "a/b",
        "x" * 64,
        ".".join(["x"] * 128),
    ],
)
def test_what_is_neither(host):
    assert not is_host(host)


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("fl.example.org:8443", "fl.example.org:8443"),
        ("10.0.0.7:08443", "10.0.0.7:8443"),
        ("[2001:db8::7]:1", "[2001:db8::7]:1"),
    ],
)
def test_a_server_has_a_host_and_a_port(address, same):
    assert insist_on_server(address) == same


@pytest.mark.parametrize(
    "address",
    [
        "",
        "here",
        "here:",
        ":8443",
        "here:0",
        "here:65536",
        "here:http",
        "https://here:1",
        "here:８４４３",
        "here: 1",
        "::1:8443",
        "[::1:8443",
        "::1]:8443",
        "[::1]",
        "[here]:1",
        "user:pw@here:1",
        "here:1:2",
        "a\nb:1",
        "here:1 ",
    ],
)
def test_an_address_that_would_be_tried_for_ever(address):
    with pytest.raises(FovaError, match="must be HOST:PORT"):
        insist_on_server(address)


@pytest.mark.parametrize("address", ["0.0.0.0:8443", "[::]:8443"])
def test_a_client_cannot_connect_to_everywhere(address):
    with pytest.raises(FovaError, match="no client can connect"):
        insist_on_server(address)


def test_brackets_only_for_ipv6():
    assert [with_port(host, 1) for host in ("here", "10.0.0.7", "::1")] == ["here:1", "10.0.0.7:1", "[::1]:1"]
