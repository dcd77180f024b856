"""The judge beside the truth: its measures by hand."""

import json

import numpy as np
import pytest

from fova.errors import FovaError
from fova.paper import calibration
from fova.paper.calibration import Calibration
from fova.paper.marked import renewed

# name -> true value, its standard error, estimate, interval
POLICIES = {
    "best": (10.0, 1.0, 7.0, 6.0, 9.9),  # covered because of the truth's own error: sqrt(2.9^2 + 1.645^2) = 3.3
    "middle": (6.0, 0.0, 8.0, 7.0, 9.0),  # chosen, not covered
    "worst": (0.0, 0.0, 1.0, -1.0, 3.0),
}


def entries():
    def entry(truth, error, value, low, high):
        judged = {"value": value, "low": low, "high": high, "inside": 0.9}
        return {"true_value": truth, "true_error": error, "judged": judged}

    return {name: entry(*figures) for name, figures in POLICIES.items()}


def test_the_measures_by_hand():
    found = Calibration.of(entries())
    assert found.rank_correlation == pytest.approx(0.5)  # ranks 3, 2, 1 against 2, 3, 1: 1 - 6 * 2 / (3 * 8)
    assert found.regret == pytest.approx(0.4)  # (10 - 6) / 10
    assert found.error == pytest.approx((3 + 2 + 1) / 3 / 10)
    np.testing.assert_array_equal(found.covered, [True, False, True])
    np.testing.assert_array_equal(found.holds_rollouts, [False, False, True])


def test_tables_are_made_from_the_file(tmp_path):
    path = tmp_path / calibration.FILE
    path.parent.mkdir()
    path.write_text(json.dumps({"tasks": {"one": entries(), "other": entries()}}))
    marks = f"<!-- {calibration.FILE}: NAME -->\nstale\n<!-- end of results -->\n"
    text = renewed(marks.replace("NAME", "summary"), tmp_path, tmp_path)
    assert "| one | 3 | 0.50 | 0.40 | 2 of 3 (67 %) | 0.20 |" in text
    assert "| all | 6 | 0.50 | 0.40 | 4 of 6 (67 %) | 0.20 |" in text
    assert "Without this allowance 2 of 6 intervals (33 %) hold them." in text
    text = renewed(marks.replace("NAME", "policies"), tmp_path, tmp_path)
    assert "| one: middle | 6 | 8 [7, 9] | no | 90 % |" in text
    with pytest.raises(FovaError, match="'mian'"):
        renewed(marks.replace("NAME", "mian"), tmp_path, tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FovaError, match="Measure it with"):
        calibration.table(tmp_path / calibration.FILE, "summary")
