"""The door before a SuperLink, tried with callers from here and from elsewhere."""

import asyncio

import httpx
import pytest

from fova.network.superlink import ControlFence


async def behind_the_door(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


def status(path, caller, trusted=frozenset()):
    async def ask():
        transport = httpx.ASGITransport(ControlFence(behind_the_door, trusted), client=(caller, 50000))
        async with httpx.AsyncClient(transport=transport, base_url="https://server") as client:
            return (await client.post(path)).status_code

    return asyncio.run(ask())


@pytest.mark.parametrize("path", ["/v1/control/start-run", "/v1/runtime/pull-object", "/docs", "/v1/fleet"])
def test_from_elsewhere_only_the_clients_interface_is_open(path):
    assert status("/v1/fleet/pull-messages", "10.0.0.9") == 200
    assert status(path, "10.0.0.9") == 403
    assert status(path, "127.0.0.1") == 200
    assert status(path, "::1") == 200


def test_a_machine_can_be_trusted_by_name_of_its_address():
    assert status("/v1/control/start-run", "10.0.0.9", frozenset({"10.0.0.9"})) == 200
    assert status("/v1/control/start-run", "10.0.0.8", frozenset({"10.0.0.9"})) == 403


@pytest.mark.parametrize("path", ["/v1/fleet/../control/start-run", "//v1/fleet/x", "/V1/FLEET/x"])
def test_paths_that_only_look_like_the_clients_interface(path):
    async def ask():
        reached = []

        async def inside(scope, receive, send):
            reached.append(scope["path"])
            await behind_the_door(scope, receive, send)

        scope = {"type": "http", "path": path, "client": ("10.0.0.9", 1), "method": "POST", "headers": []}

        async def receive():
            return {"type": "http.request"}

        async def send(message):
            pass

        await ControlFence(inside)(scope, receive, send)
        return reached

    reached = asyncio.run(ask())
    # Starlette matches routes on the raw path, so what starts with the clients' prefix never reaches another route.
    assert all(path.startswith("/v1/fleet/") for path in reached)


def test_flower_still_has_the_hook_and_the_one_port_that_the_door_is_for():
    """A newer Flower may move things; then the door must be looked at again."""
    import inspect

    from flwr.superlink import extensions, main

    assert "*extensions.get_middleware()" in inspect.getsource(main._get_middleware)
    assert callable(extensions.get_middleware)
    assert "include_router(control_router)" in inspect.getsource(main.create_app)
