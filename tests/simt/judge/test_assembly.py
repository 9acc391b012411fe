import pytest

from nanoeuler.simt.judge.assembly import FAMILIES, Instruction, family, is_float64, read_ptx, read_sass

SASS = """
//--------------------- .text.kernel --------------------------
	.section	.text.kernel,"ax",@progbits
.text.kernel:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
	//## File "/home/me/my kernels.py", line 7
        /*0010*/              @!P0 FADD.FTZ R0, R0, R1 ;
        /*0020*/             @UP1 UIADD3 UR4, UR4, 0x1, URZ ;
	//## File "/home/me/my kernels.py", line 8 inlined at "/home/me/my kernels.py", line 3
        /*0030*/                   DFMA R4, R4, R6, R8 &req={0} ?WAIT4_END_GROUP ;
.L_x_0:
        /*0040*/                   BRA `(.L_x_0);
        /*0050*/                   NOP;
"""

PTX = """
.version 9.0
.target sm_80
.extern .shared .align 4 .b8 _dynamic[];
	.file	1 "/home/me/my kernels.py"
.visible .entry kernel(
	.param .u64 kernel_param_0,
	.param .u32 kernel_param_1
)
{
	.reg .pred 	%p<3>;
	.reg .f64 	%fd<3>;
	.loc	1 7 5
	ld.param.u64 	%rd1, [kernel_param_0]; // add.f64 in a comment
	mov.u32 	%r1, %tid.x;
	@%p1 bra 	$L__BB0_2;
$L__BB0_1: add.rn.f64 	%fd1, %fd1, %fd2;
	.loc	1 9 1, function_name $L__info_string0, inlined_at 1 7 5
	{ // begin inline asm
	cp.async.ca.shared.global [%r1], [%rd1], 16;
	}
	ld.global.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd1];
	call.uni (retval0),
	helper,
	(
	param0
	);
	@!%p2 st.global.f64 	[%rd1], %fd1;
	ret;
}
"""


def test_sass_is_read_with_its_lines() -> None:
    file = "/home/me/my kernels.py"
    assert read_sass(SASS) == [
        Instruction("MOV"),
        Instruction("FADD.FTZ", file, 7),
        Instruction("UIADD3", file, 7),
        Instruction("DFMA", file, 8),
        Instruction("BRA", file, 8),
    ]


def test_ptx_is_read_with_its_lines() -> None:
    file = "/home/me/my kernels.py"
    opcodes = ["ld.param.u64", "mov.u32", "bra", "add.rn.f64"]
    inlined = ["cp.async.ca.shared.global", "ld.global.v4.f32", "call.uni", "st.global.f64", "ret"]
    assert read_ptx(PTX) == [Instruction(o, file, 7) for o in opcodes] + [Instruction(o, file, 9) for o in inlined]


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("FFMA", "float32"),
        ("DSETP.GT.AND", "float64"),
        ("HFMA2.MMA", "float16"),
        ("HMMA.16816.F32.BF16", "tensor core"),
        ("HGMMA.64x8x16.F32", "tensor core"),
        ("MUFU.EX2", "special function"),
        ("IMAD.WIDE.U32", "integer"),
        ("UISETP.GE.S64.AND", "integer"),
        ("F2F.F64.F32", "conversion"),
        ("UMOV", "move"),
        ("LDG.E.128", "global memory"),
        ("STS.U8", "shared memory"),
        ("LDSM.16.M88.4", "shared memory"),
        ("STL", "local memory"),
        ("ULDC.64", "constant memory"),
        ("LDGSTS.E.BYPASS.128", "async copy"),
        ("UTMALDG.2D", "async copy"),
        ("RED.E.ADD.F32.FTZ.RN", "atomic"),
        ("SHFL.BFLY", "warp"),
        ("BAR.SYNC.DEFER_BLOCKING", "barrier"),
        ("BSSY.RECONVERGENT", "control"),
        ("FROBNICATE", "other"),
        ("fma.rn.f32", "float32"),
        ("setp.lt.f64", "float64"),
        ("add.rn.bf16x2", "float16"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "tensor core"),
        ("ex2.approx.ftz.f32", "special function"),
        ("mad.wide.u32", "integer"),
        ("shl.b32", "integer"),
        ("cvt.rn.f32.f64", "conversion"),
        ("selp.f64", "move"),
        ("ld.f32", "global memory"),
        ("ld.volatile.shared.f32", "shared memory"),
        ("st.shared::cta.v4.b32", "shared memory"),
        ("ld.param.u64", "constant memory"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "shared memory"),
        ("cp.async.cg.shared.global", "async copy"),
        ("atom.shared.add.f32", "atomic"),
        ("shfl.sync.bfly.b32", "warp"),
        ("bar.sync", "barrier"),
        ("bra.uni", "control"),
    ],
)
def test_family(opcode: str, expected: str) -> None:
    assert family(opcode) == expected
    assert expected in FAMILIES


@pytest.mark.parametrize(
    "opcode",
    [
        *("DADD", "DMUL.RP", "DSETP.MAX.AND", "DMMA.884", "MUFU.RCP64H", "F2F.F32.F64", "I2F.F64", "F2I.F64.TRUNC"),
        *("RED.E.ADD.F64.RN", "FRND.F64", "add.f64", "fma.rn.f64", "cvt.f64.f32", "cvt.rn.f32.f64", "setp.gt.f64"),
        *("atom.global.add.f64", "sqrt.rn.f64", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"),
    ],
)
def test_float64_arithmetic_and_conversion_is_float64(opcode: str) -> None:
    assert is_float64(opcode)


@pytest.mark.parametrize(
    "opcode",
    [
        *(
            "LDG.E.64",
            "STS.64",
            "IADD.64",
            "SHF.R.U64",
            "I2F.U64.RP",
            "MUFU.RCP",
            "ULDC.64",
            "DEPBAR.LE",
            "F2F.F16.F32",
        ),
        *("ld.global.f64", "st.shared.f64", "mov.f64", "selp.f64", "mov.b64", "mul.wide.u32", "cvt.u64.u32", "add.f32"),
    ],
)
def test_64_bits_that_are_only_carried_are_not_float64(opcode: str) -> None:
    assert not is_float64(opcode)
