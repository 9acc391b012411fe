"""Graphics cards by name, and a kernel's place under the roofline of one.

The roofline model: a kernel that does I floating-point operations for each byte it moves runs at most at
min(peak, I * bandwidth). Left of the ridge, where the two meet, memory is the limit; right of it, arithmetic
(Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures", 2009).

Peaks are those of float32 without tensor cores, at the boost clock, a fused multiply-add counted as two: NVIDIA's
figures, each with the document that has it. Where that is the page of a GeForce card, the peak is twice its cores times
its boost clock. float16 is reckoned like float32, as one operation a lane. No kernel reaches all of it.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.traced.numbers import Numbers
from nanoeuler.simt.traced.result import Trace

if TYPE_CHECKING:
    from nanoeuler.simt.traced.pictures.picture import Picture


@dataclass(frozen=True)
class Card:
    """A graphics card. ``float64_share`` is the rate of float64 as a share of that of float32."""

    name: str
    tflops: float  # of float32, 10**12 operations a second
    bandwidth: float  # of the memory, in GB/s, 10**9 bytes
    float64_share: float
    source: str

    @property
    def peak(self) -> float:
        """Floating-point operations a second, in float32."""
        return self.tflops * 1e12

    @property
    def bytes_per_second(self) -> float:
        """Bytes of memory a second."""
        return self.bandwidth * 1e9


# Rates of float64: NVIDIA's white papers on V100, A100, H100; on Turing; on Ampere GA102, Ada, RTX Blackwell.
HALF, TURING, GRAPHICS = 1 / 2, 1 / 32, 1 / 64
ADA, AMPERE = "NVIDIA Ada GPU Architecture, appendix", "NVIDIA Ampere GA102 GPU Architecture, appendix"
PAGE = "GeForce {} specifications, nvidia.com"

CARDS: dict[str, Card] = {
    card.name: card
    for card in (
        Card("T4", 8.1, 320, TURING, "NVIDIA T4 Tensor Core GPU datasheet"),
        Card("V100 PCIe", 14, 900, HALF, "NVIDIA V100 Tensor Core GPU datasheet"),
        Card("V100 SXM2", 15.7, 900, HALF, "NVIDIA V100 Tensor Core GPU datasheet"),
        Card("A100 40GB", 19.5, 1555, HALF, "NVIDIA A100 Tensor Core GPU datasheet"),
        Card("A100 80GB PCIe", 19.5, 1935, HALF, "NVIDIA A100 80GB datasheet"),
        Card("A100 80GB SXM", 19.5, 2039, HALF, "NVIDIA A100 80GB datasheet"),
        Card("A10", 31.2, 600, GRAPHICS, "NVIDIA A10 Tensor Core GPU datasheet"),
        Card("A40", 37.4, 696, GRAPHICS, "NVIDIA A40 datasheet"),
        Card("L4", 30.3, 300, GRAPHICS, "NVIDIA L4 Tensor Core GPU datasheet"),
        Card("L40", 90.5, 864, GRAPHICS, "NVIDIA L40 datasheet"),
        Card("L40S", 91.6, 864, GRAPHICS, "NVIDIA L40S datasheet"),
        Card("H100 PCIe", 51, 2000, HALF, "NVIDIA H100 Tensor Core GPU datasheet, 2023"),
        Card("H100 SXM", 67, 3350, HALF, "NVIDIA H100 Tensor Core GPU datasheet"),
        Card("H200", 67, 4800, HALF, "NVIDIA H200 Tensor Core GPU datasheet"),
        Card("B200", 80, 8000, HALF, "NVIDIA Blackwell Architecture Technical Brief, HGX B200"),
        Card("RTX A6000", 38.7, 768, GRAPHICS, "NVIDIA RTX A6000 datasheet"),
        Card("RTX 6000 Ada", 91.1, 960, GRAPHICS, "NVIDIA RTX 6000 Ada Generation datasheet"),
        Card("RTX 2060", 6.5, 336, TURING, PAGE.format("RTX 2060")),
        Card("RTX 2070", 7.5, 448, TURING, PAGE.format("RTX 2070")),
        Card("RTX 2080", 10.1, 448, TURING, PAGE.format("RTX 2080")),
        Card("RTX 2080 Ti", 13.4, 616, TURING, "NVIDIA Turing GPU Architecture, reference card"),
        Card("RTX 3060", 12.7, 360, GRAPHICS, PAGE.format("RTX 3060") + ", 12 GB"),
        Card("RTX 3070", 20.3, 448, GRAPHICS, AMPERE),
        Card("RTX 3080", 29.8, 760, GRAPHICS, AMPERE + ", 10 GB"),
        Card("RTX 3090", 35.6, 936, GRAPHICS, AMPERE),
        Card("RTX 4060", 15.1, 272, GRAPHICS, PAGE.format("RTX 4060")),
        Card("RTX 4060 Laptop", 14.6, 256, GRAPHICS, PAGE.format("RTX 40 Series Laptop") + ", highest boost clock"),
        Card("RTX 4060 Ti", 22.1, 288, GRAPHICS, PAGE.format("RTX 4060 Ti")),
        Card("RTX 4070", 29.1, 504, GRAPHICS, PAGE.format("RTX 4070")),
        Card("RTX 4070 Ti", 40.1, 504, GRAPHICS, PAGE.format("RTX 4070 Ti")),
        Card("RTX 4080", 48.7, 717, GRAPHICS, ADA),
        Card("RTX 4090", 82.6, 1008, GRAPHICS, ADA),
        Card("RTX 5070", 30.8, 672, GRAPHICS, PAGE.format("RTX 5070")),
        Card("RTX 5080", 56.3, 960, GRAPHICS, "NVIDIA RTX Blackwell GPU Architecture, appendix"),
        Card("RTX 5090", 104.8, 1792, GRAPHICS, "NVIDIA RTX Blackwell GPU Architecture, appendix"),
    )
}
SHORT = {"v100": "V100 SXM2", "a100": "A100 40GB", "a100 80gb": "A100 80GB SXM", "h100": "H100 SXM"}


def card(name: str | Card) -> Card:
    """Return a card by its name; capitals, spaces, dashes and "NVIDIA GeForce" before it do not matter.

    >>> card("rtx4090").name, card("h100").name
    ('RTX 4090', 'H100 SXM')

    Raises:
        UserError: there is no such card in the table.
    """
    if isinstance(name, Card):
        return name
    known = {_plain(n): c for n, c in CARDS.items()} | {_plain(n): CARDS[full] for n, full in SHORT.items()}
    plain = _plain(str(name))
    found = known.get(plain) or known.get("rtx" + plain)
    if found is None:
        raise UserError(
            f"no card '{name}'{nearest(plain, known)}: known are {', '.join(CARDS)}; or give a Card with its figures"
        )
    return found


def _plain(name: str) -> str:
    return re.sub(r"nvidia|geforce|tesla|[^a-z0-9]|gpu$", "", name.lower())


@dataclass(frozen=True)
class Point:
    """A kernel's place under the roof, for one way to count its bytes."""

    bytes: int
    intensity: float  # floating-point operations for each byte
    attainable: float  # floating-point operations a second
    bound: Literal["memory", "compute"]


@dataclass(frozen=True)
class Roofline:
    """The roof of a card over a kernel.

    ``moved`` counts the bytes of every request's sectors, ``distinct`` each sector once, as with perfect caches: the
    truth about the memory's traffic lies between them. ``peak`` is the card's for the types that the kernel computes
    in: lower than its float32's if some of it is float64.
    """

    kernel: str
    card: Card
    flops: int
    peak: float  # floating-point operations a second
    bandwidth: float  # bytes a second
    moved: Point
    distinct: Point

    @property
    def ridge(self) -> float:
        """The arithmetic intensity from which on arithmetic is the limit."""
        return self.peak / self.bandwidth

    def picture(self) -> "Picture":
        """Return the roof with the kernel's two places under it."""
        from nanoeuler.simt.traced.pictures.roof import roof

        points = [(name, point.intensity, None) for name, point in self._points()]
        return roof(points, card=self.card.name, peak_flops=self.peak, bandwidth=self.bandwidth)

    def _points(self) -> list[tuple[str, Point]]:
        return [("every request's sectors", self.moved), ("each sector once", self.distinct)]

    def _repr_html_(self) -> str:
        return self.picture()._repr_html_()

    def __str__(self) -> str:
        head = f"{self.kernel} on {self.card.name}: {self.peak / 1e12:.4g} TFLOP/s, {self.bandwidth / 1e9:.4g} GB/s, "
        lines = [head + f"ridge at {self.ridge:.3g} FLOP/byte"]
        for name, point in self._points():
            share = point.attainable / self.peak
            lines.append(
                f"  {name:<23} {point.intensity:>8.3g} FLOP/byte: at most {point.attainable / 1e12:.3g} TFLOP/s "
                f"({share:.{0 if share >= 0.1 else 1}%} of the peak), {point.bound}-bound"
            )
        return "\n".join(lines)


def roofline(trace: Trace | Numbers, name: str | Card) -> Roofline:
    """Return where a kernel lies under the roof of a card.

    Raises:
        UserError: there is no such card in the table.
    """
    found, chosen = trace.numbers if isinstance(trace, Trace) else trace, card(name)
    totals = found.totals
    peak = _peak(chosen, totals.flops_by_precision)
    points = [
        _point(count, intensity, peak, chosen.bytes_per_second)
        for count, intensity in (
            (totals.bytes_moved, totals.intensity),
            (totals.bytes_distinct, totals.intensity_distinct),
        )
    ]
    return Roofline(found.kernel, chosen, totals.flops, peak, chosen.bytes_per_second, *points)


def _peak(chosen: Card, flops: dict[str, int]) -> float:
    """Return operations a second for such a mixture: each kind takes its time, one after the other."""
    double = flops.get("float64", 0)
    single = sum(flops.values()) - double
    if not double:
        return chosen.peak
    return (single + double) / (single / chosen.peak + double / (chosen.peak * chosen.float64_share))


def _point(count: int, intensity: float, peak: float, bandwidth: float) -> Point:
    memory = intensity * bandwidth
    return Point(count, intensity, min(peak, memory), "memory" if memory < peak else "compute")
