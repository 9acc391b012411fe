"""Every handler refuses a modifier that it does not name: nothing of an instruction is skipped."""

import pytest

from nanoeuler.simt.faults import UnsupportedError
from nanoeuler.simt.ptx import instructions  # noqa: F401 (importing them registers the handlers)
from nanoeuler.simt.ptx.decode import HANDLERS, Decoder
from nanoeuler.simt.ptx.parse import parse
from nanoeuler.simt.ptx.program import flatten

KERNEL = """.version 9.0
.target sm_90
.address_size 64
.global .align 16 .b8 memory[64];
.visible .entry kernel() {{
.shared .align 16 .b8 shared[512];
.local .align 16 .b8 local[64];
.reg .pred %p, %q; .reg .b16 %h; .reg .b32 %r, %s, %x<8>; .reg .f32 %f, %g; .reg .b64 %l, %m; .reg .f64 %d, %e;
here:
{instruction};
ret;
}}"""
A, B, X = "{%x0, %x1, %x2, %x3}", "{%x4, %x5}", "{%x0, %x1}"
INSTRUCTIONS = {
    **{name: f"{name}.f32 %f, %g" for name in ("abs", "neg")},
    **{name: f"{name}.f32 %f, %g, %f" for name in ("add", "sub", "mul", "min", "max", "copysign")},
    **{name: f"{name}.b32 %r, %s, %r" for name in ("and", "or", "xor")},
    **{name: f"{name}.b32 %r, %s" for name in ("brev", "clz", "cnot", "not", "popc")},
    **{name: f"{name}.approx.f32 %f, %g" for name in ("cos", "ex2", "lg2", "sin", "tanh", "rcp", "rsqrt", "sqrt")},
    **{name: f"{name}.u32 %r, %s, %r" for name in ("addc", "subc", "rem")},
    **{name: f"{name}.b32 %r, %s, 3" for name in ("shl", "shr")},
    **{name: f"{name}.lo.u32 %r, %s, %r, %s" for name in ("madc", "mad24")},
    **{name: f"{name};" for name in ("exit", "ret", "trap")},
    **{name: f"{name}.sync 0" for name in ("bar", "barrier")},
    **{name: f"{name}.global.u32 %r, [memory]" for name in ("ld", "ldu")},
    **{name: f"{name}.global.L2 [memory]" for name in ("prefetch", "prefetchu")},
    **{name: f"{name}.u32.u32 %r, %s, %r, %s" for name in ("dp2a", "dp4a")},
    **{name: f"{name}.sc" for name in ("fence", "membar")},
    "activemask": "activemask.b32 %r",
    "applypriority": "applypriority.global.L2::evict_normal [memory], 128",
    "atom": "atom.global.add.u32 %r, [memory], 1",
    "bfe": "bfe.u32 %r, %s, 3, 4",
    "bfi": "bfi.b32 %r, %s, %r, 3, 4",
    "bfind": "bfind.u32 %r, %s",
    "bmsk": "bmsk.clamp.b32 %r, %s, 3",
    "bra": "bra here",
    "brx": "brx.idx %r, targets",
    "cp": "cp.async.ca.shared.global [shared], [memory], 4",
    "cvt": "cvt.rn.f32.s32 %f, %r",
    "cvta": "cvta.global.u64 %l, %m",
    "div": "div.rn.f32 %f, %g, %f",
    "fma": "fma.rn.f32 %f, %g, %f, %g",
    "isspacep": "isspacep.global %p, %l",
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r}, [shared]",
    "lop3": "lop3.b32 %r, %s, %r, %s, 0x3f",
    "mad": "mad.lo.u32 %r, %s, %r, %s",
    "match": "match.any.sync.b32 %r, %s, -1",
    "mma": f"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {X}, {A}, {B}, {X}",
    "mov": "mov.b32 %r, %s",
    "movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16 %r, %s",
    "mul24": "mul24.lo.u32 %r, %s, %r",
    "nanosleep": "nanosleep.u32 20",
    "prmt": "prmt.b32 %r, %s, %r, 0x3210",
    "red": "red.global.add.u32 [memory], 1",
    "redux": "redux.sync.add.u32 %r, %s, -1",
    "sad": "sad.u32 %r, %s, %r, %s",
    "selp": "selp.b32 %r, %s, %r, %p",
    "set": "set.lt.u32.f32 %r, %f, %g",
    "setp": "setp.lt.f32 %p, %f, %g",
    "shf": "shf.l.wrap.b32 %r, %s, %r, 3",
    "shfl": "shfl.sync.bfly.b32 %r, %s, 1, 31, -1",
    "slct": "slct.b32.s32 %r, %s, %r, %s",
    "st": "st.global.u32 [memory], %r",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [shared], {%r}",
    "testp": "testp.finite.f32 %p, %f",
    "vote": "vote.sync.all.pred %p, %q, -1",
}


def decode(instruction: str) -> None:
    """Decode a kernel with one instruction."""
    text = KERNEL.format(instruction=instruction)
    if instruction.startswith("brx"):
        text = text.replace("here:", "here: targets: .branchtargets here;")
    Decoder(flatten(parse(text))).decode()


def test_no_handler_is_left_out():
    assert set(INSTRUCTIONS) == set(HANDLERS) - {"vprintf"}  # a call, whose modifiers say nothing


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_a_modifier_that_is_not_known_is_refused(name):
    text = INSTRUCTIONS[name]
    decode(text)
    opcode, space, operands = text.rstrip(";").partition(" ")
    with pytest.raises(UnsupportedError, match=r"does not know the instruction '.*frobnicate"):
        decode(f"{opcode}.frobnicate{space}{operands}")


@pytest.mark.parametrize(
    "text",
    [
        "cp.async.commit_group.frobnicate",
        "cp.async.wait_group.frobnicate 0",
        "cp.async.wait_all.frobnicate",
        "discard.global.L2 [memory], 128",  # what is there afterwards is not known
        "brkpt",  # stops for a debugger, and goes on
        "st.shared::cluster.u32 [%l], %r",
        "cvt.rn.satfinite.bf16.f32 %h, %f",
        "cvt.rm.bf16.s32 %h, %r",
        "cvt.rn.satfinite.bf16x2.f32 %r, %f, %g",
        "cvt.rn.relu.tf32.f32 %r, %f",
        "cvt.pack.sat.s16.s32 %r, %s, %r",
        "setp.lt.ftz.f16x2 %p|%q, %r, %s",
        "barrier.cluster.sync",
        "bar.arrive 0, 64",
        "ld.global.L2::cache_hint.u32 %r, [memory], %l",
        "min.xorsign.abs.f32 %f, %g, %f",
    ],
)
def test_what_would_be_computed_wrongly_is_refused(text):
    with pytest.raises(UnsupportedError, match="does not know the instruction"):
        decode(text)
