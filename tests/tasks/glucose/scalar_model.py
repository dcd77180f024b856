"""One patient with plain floats, written from the published equations line by line: the reference of the tests."""

import math


def derivatives(x, meal, insulin, size, p):
    """x is the list of 13 states; the equations are numbered x1' to x13'."""
    x = [0.0, *x]  # states count from 1
    d = 1000.0 * meal
    i = 6000.0 * insulin / p["BW"]
    q = x[1] + x[2]
    if size == 0.0:
        kgut = p["kmax"]
    else:
        alpha = 5.0 / (2.0 * size * (1.0 - p["b"]))
        beta = 5.0 / (2.0 * size * p["d"])
        upper = math.tanh(alpha * (q - p["b"] * size))
        lower = math.tanh(beta * (q - p["d"] * size))
        kgut = p["kmin"] + (p["kmax"] - p["kmin"]) / 2.0 * (upper - lower + 2.0)
    egp = max(p["kp1"] - p["kp2"] * x[4] - p["kp3"] * x[9], 0.0)
    ra = p["f"] * p["kabs"] * x[3] / p["BW"]
    e = max(p["ke1"] * (x[4] - p["ke2"]), 0.0)
    concentration = x[6] / p["Vi"]
    rates = {
        1: -p["kmax"] * x[1] + d,
        2: p["kmax"] * x[1] - kgut * x[2],
        3: kgut * x[2] - p["kabs"] * x[3],
        4: egp + ra - p["Fsnc"] - e - p["k1"] * x[4] + p["k2"] * x[5],
        5: -(p["Vm0"] + p["Vmx"] * x[7]) * x[5] / (p["Km0"] + x[5]) + p["k1"] * x[4] - p["k2"] * x[5],
        6: -(p["m2"] + p["m4"]) * x[6] + p["m1"] * x[10] + p["ka1"] * x[11] + p["ka2"] * x[12],
        7: -p["p2u"] * x[7] + p["p2u"] * (concentration - p["Ib"]),
        8: -p["ki"] * (x[8] - concentration),
        9: -p["ki"] * (x[9] - x[8]),
        10: -(p["m1"] + p["m30"]) * x[10] + p["m2"] * x[6],
        11: i - (p["ka1"] + p["kd"]) * x[11],
        12: p["kd"] * x[11] - p["ka2"] * x[12],
        13: -p["ksc"] * x[13] + p["ksc"] * x[4],
    }
    for number in (4, 5, 6, 10, 11, 12, 13):
        if x[number] <= 0.0:
            rates[number] = max(rates[number], 0.0)
    return [rates[number] for number in range(1, 14)]


def day(patient, meals, insulin, minutes, substeps):
    """Glucose at the end of every minute, by many small Euler-Heun steps.

    `meals` maps a minute to grams; they are eaten at 5 grams a minute. `insulin` maps a minute to units per minute.
    """
    x, p = list(patient["start"]), patient["figures"]
    to_eat, eating, size, glucose = 0.0, False, 0.0, []
    for minute in range(minutes):
        to_eat += meals.get(minute, 0.0)
        meal = min(to_eat, 5.0)
        if meal > 0.0 and not eating:
            size = x[0] + x[1]
        eating = meal > 0.0
        size += 1000.0 * meal
        to_eat -= meal
        h = 1.0 / substeps
        for _ in range(substeps):
            k1 = derivatives(x, meal, insulin(minute), size, p)
            k2 = derivatives([a + h * b for a, b in zip(x, k1)], meal, insulin(minute), size, p)
            x = [a + h / 2.0 * (b + c) for a, b, c in zip(x, k1, k2)]
            x = [max(a, 0.0) if number in (3, 4, 5, 9, 10, 11, 12) else a for number, a in enumerate(x)]
        glucose.append(x[12] / p["Vg"])
    return glucose
