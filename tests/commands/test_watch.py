"""`fova watch` as a process of its own."""

import re
import signal
import subprocess
import sys
import urllib.request

from made_runs import start_run
from patience import PATIENCE


def test_it_serves_until_ctrl_c_and_then_says_nothing(tmp_path):
    start_run(tmp_path / "runs/one")
    command = [sys.executable, "-m", "fova", "watch", "runs", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        first = process.stdout.readline()
        address = re.fullmatch(r"watching runs on (http://127\.0\.0\.1:\d+/) \(Ctrl-C stops\)\n", first).group(1)
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            assert b">one</a>" in answer.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, "", "")
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "one", "config.toml"]


def test_a_wrong_port_or_folder_is_one_message(fova_command, tmp_path):
    code, _, err = fova_command("watch", tmp_path, "--port", 70_000)
    assert (code, err) == (2, "error: port is 70000, but must be at least 0 and at most 65,535.\n")
    code, _, err = fova_command("watch", "nowhere")
    assert code == 2
    assert "nowhere is not a folder" in err
