"""Colours are told apart: from the paper by everybody, and from one another by those who see fewer of them.

Colour blindness is simulated by the matrices of Machado, Oliveira and Fernandes (2009) at full severity, on linear RGB;
the distance of two colours is Euclidean in CIE L*a*b*.
"""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from veilcast.lab.report import style

VIEWS = {
    "all colours": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


@pytest.mark.parametrize("dark", [False, True])
def test_every_line_stands_out_from_the_paper(dark: bool) -> None:
    """At least 3 to 1, as WCAG asks of what is not text."""
    for pair in style.PALETTE:
        assert _contrast(pair[dark], style.PAPER[dark]) >= 3


@pytest.mark.parametrize("dark", [False, True])
def test_text_is_readable(dark: bool) -> None:
    """At least 4.5 to 1, as WCAG asks of text."""
    for name in ("ink", "soft", "link", "good", "half", "bad"):
        for ground in ("paper", "panel"):
            assert _contrast(style.SURFACES[name][dark], style.SURFACES[ground][dark]) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
def test_a_number_is_readable_on_every_shade_and_shades_go_one_way(dark: bool) -> None:
    for shade in style.SHADES:
        assert _contrast(*shade[dark]) >= 4.5
    paper = [_contrast(shade[dark][0], style.PAPER[dark]) for shade in style.SHADES]
    assert paper == sorted(paper)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dark", [False, True])
def test_neighbouring_shades_differ_for_everybody(view: str, dark: bool) -> None:
    for one, other in pairwise(style.SHADES):
        assert _distance(one[dark][0], other[dark][0], VIEWS[view]) >= 7


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dark", [False, True])
def test_any_two_lines_differ_in_colour(view: str, dark: bool) -> None:
    for one, other in combinations(style.PALETTE, 2):
        assert _distance(one[dark], other[dark], VIEWS[view]) >= 10
    for one, other in combinations(style.PALETTE[:4], 2):
        assert _distance(one[dark], other[dark], VIEWS[view]) >= 20


def test_the_check_notices_colours_that_some_cannot_tell_apart() -> None:
    assert _distance("#d62728", "#8a7a1f", VIEWS["all colours"]) > 30
    assert _distance("#d62728", "#8a7a1f", VIEWS["deuteranopia"]) < 10


def _linear(colour: str) -> NDArray[np.float64]:
    channels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def _contrast(one: str, other: str) -> float:
    dim, bright = sorted(float(_linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (bright + 0.05) / (dim + 0.05)


def _distance(one: str, other: str, view: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(_lab(view @ _linear(one)) - _lab(view @ _linear(other))))


def _lab(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    )
    share = (to_xyz @ linear.clip(0, 1)) / to_xyz.sum(axis=1)
    root = np.where(share > 216 / 24389, np.cbrt(share), (24389 / 27 * share + 16) / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])
