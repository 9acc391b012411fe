"""PTX text: variables with initial values, device functions, scopes, control flow, special registers."""

import numpy as np
import pytest

from nanoeuler.errors import UserError
from nanoeuler.simt.faults import KernelFaults, UnsupportedError
from nanoeuler.simt.launch import launch_shape
from nanoeuler.simt.ptx import execute, run_text
from nanoeuler.simt.ptx.parse import parse, parse_variable
from nanoeuler.simt.ptx.program import flatten

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
SETUP = """.reg .u64 %p, %o; .reg .u32 %t; .reg .pred %q;
mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; ld.param.u64 %p, [out]; add.u64 %p, %p, %o;"""


def run(body: str, before: str = "", threads: int = 32, shared_bytes: int = 0) -> list[int]:
    """Run a kernel whose ``body`` leaves a value in %r, and return it for every thread."""
    whole = f"{SETUP}\n.reg .b32 %r, %s; {body}\nst.global.u32 [%p], %r;\nret;"
    text = f"{HEAD}{before}\n.visible .entry k(.param .u64 out) {{\n{whole}\n}}"
    out = np.zeros(threads, np.uint32)
    run_text(text, launch_shape(1, threads, shared_bytes), (out,))
    return out.tolist()


def test_variables_with_initial_values():
    before = """.const .align 4 .b8 bytes[8] = {1, 0, 0, 0, 0xFF, 255};
.global .align 4 .u32 words[2][2] = {{7, -1}, {0b11, 017}};
.global .align 4 .f32 one = 0f3F800000;
.global .align 8 .u64 pointer[2] = {0, generic(words)};
.common .global .align 8 .u64 empty;"""
    assert run("ld.const.u32 %r, [bytes+4];", before)[0] == 0xFFFF
    assert run("ld.global.u32 %r, [words+12];", before)[0] == 15
    assert run("ld.global.u32 %r, [one];", before)[0] == 0x3F800000
    assert run(".reg .u64 %x; ld.global.u64 %x, [pointer+8]; ld.u32 %r, [%x+4];", before)[0] == 2**32 - 1
    assert run(".reg .u64 %x; mov.u64 %x, words+8; cvta.global.u64 %x, %x; ld.u32 %r, [%x];", before)[0] == 3
    assert run("ld.global.u32 %r, [empty];", before)[0] == 0


def test_writes_to_a_modules_variable_last_for_the_launch_only():
    before = ".global .align 4 .u32 count;"
    body = "atom.global.add.u32 %s, [count], 1; bar.sync 0; ld.global.u32 %r, [count];"
    assert run(body, before) == [32] * 32
    assert run(body, before) == [32] * 32


def test_generic_addresses_lead_to_three_spaces_at_once():
    body = """.local .align 4 .b8 mine[4]; .shared .align 4 .b8 ours[4]; .reg .u64 %a, %b, %x; .reg .pred %one, %two;
mov.u32 %s, 1; st.local.u32 [mine], %s; mov.u32 %s, 2; st.shared.u32 [ours], %s;
mov.u32 %s, 3; st.global.u32 [theirs], %s;
rem.u32 %s, %t, 3; setp.eq.u32 %one, %s, 1; setp.eq.u32 %two, %s, 2;
cvta.local.u64 %x, mine; mov.u64 %a, ours; cvta.shared.u64 %a, %a; cvta.global.u64 %b, theirs;
@%one mov.u64 %x, %a; @%two mov.u64 %x, %b;
ld.u32 %r, [%x]; add.u32 %s, %r, 10; st.u32 [%x], %s; ld.u32 %r, [%x];
isspacep.shared %q, %x; @%q add.u32 %r, %r, 100; isspacep.global %q, %x; @%q add.u32 %r, %r, 200; isspacep.local %q, %x;
@%q add.u32 %r, %r, 300;"""
    assert run(body, ".global .align 4 .u32 theirs;") == [[311, 112, 213][t % 3] for t in range(32)]


CALLED = """.visible .func (.param .b32 result) power(.param .b32 base, .param .b32 exponent)
{
.reg .b32 %r<4>; .reg .pred %p;
ld.param.b32 %r0, [base];
ld.param.b32 %r1, [exponent];
mov.u32 %r2, 1;
again:
setp.eq.u32 %p, %r1, 0;
@%p bra done;
mul.lo.u32 %r2, %r2, %r0;
sub.u32 %r1, %r1, 1;
bra.uni again;
done:
st.param.b32 [result], %r2;
ret;
}"""
CALL = """{ .param .b32 a; .param .b32 b; .param .b32 c; st.param.b32 [a], 3; st.param.b32 [b], %t;
call.uni (c), power, (a, b); ld.param.b32 %r, [c]; }"""


def test_device_functions_are_inlined():
    assert run(CALL, CALLED, threads=12) == [3**t for t in range(12)]
    twice = CALL + " mov.u32 %s, %r; " + CALL + " add.u32 %r, %r, %s;"
    assert run(twice, CALLED, threads=12) == [2 * 3**t for t in range(12)]


def test_a_function_that_is_only_declared_is_named():
    with pytest.raises(UnsupportedError, match="a call of 'power', which the compiler leaves to be linked"):
        run(CALL, CALLED[: CALLED.index("{")] + ";")


def test_recursion_is_named():
    loop = ".func again()\n{\ncall.uni again, ();\nret;\n}"
    with pytest.raises(UnsupportedError, match="recursive"):
        run("mov.u32 %r, 0; call.uni again, ();", loop)


def test_braces_hide_names():
    body = "mov.u32 %r, 1; { .reg .b32 %r; mov.u32 %r, 2; { .reg .b32 %s; mov.u32 %s, %r; } } "
    assert run(body)[0] == 1


def test_loops_whose_lengths_differ_meet_again_where_they_end():
    body = """mov.u32 %r, 0; mov.u32 %s, %t;
loop: setp.eq.u32 %q, %s, 0; @%q bra done; add.u32 %r, %r, %s; sub.u32 %s, %s, 1; bra loop;
done: bar.sync 0; vote.sync.ballot.b32 %s, 1, -1; add.u32 %r, %r, %s;""".replace(
        "ballot.b32 %s, 1", "ballot.b32 %s, %z"
    )
    body = ".reg .pred %z; setp.eq.u32 %z, %t, %t; " + body
    assert run(body) == [(t * (t + 1) // 2 + 2**32 - 1) % 2**32 for t in range(32)]


def test_branch_tables():
    body = """and.b32 %s, %t, 3;
targets: .branchtargets one, two, one, three;
brx.idx %s, targets;
one: mov.u32 %r, 10; bra end;
two: mov.u32 %r, 20; bra end;
three: mov.u32 %r, 30;
end:"""
    assert run(body) == [[10, 20, 10, 30][t % 4] for t in range(32)]


def test_clocks_move_on_and_sizes_are_told():
    clocks = ".reg .u64 %a, %b; mov.u64 %a, %clock64; add.u32 %s, %t, 1; mov.u64 %b, %clock64;"
    assert 0 <= run(f"{clocks} sub.u64 %b, %b, %a; cvt.u32.u64 %r, %b;")[0] < 100
    assert run("mov.u32 %r, %dynamic_smem_size;", shared_bytes=640)[0] == 640


def test_an_unknown_special_register_is_named():
    with pytest.raises(UnsupportedError, match="%clusterid"):
        run("mov.u32 %r, %clusterid.x;")


def test_the_line_of_an_unknown_instruction_is_named():
    body = ".loc 1 42 3\nmov.u32 %r, 0;\ntcgen05.alloc %r;"
    with pytest.raises(UnsupportedError, match=r"tcgen05\.alloc %r.*model\.py:42"):
        run(body, '.file 1 "model.py"')


def test_of_inlined_code_the_callers_line_is_named_too():
    files = '.file 1 "library.py"\n.file 2 "model.py"'
    body = ".loc 1 42 3, function_name $L__info_string0, inlined_at 2 7 1\nmov.u32 %r, 0;\ntcgen05.alloc %r;"
    with pytest.raises(UnsupportedError, match=r"library\.py:42, inlined from model\.py:7"):
        run(body, files)


def test_nothing_runs_before_the_whole_text_is_known(monkeypatch):
    monkeypatch.setattr(execute, "machine_for", lambda *_: pytest.fail("it ran"))
    with pytest.raises(UnsupportedError):
        run("mov.u32 %r, 0; st.global.u32 [%p], %r; frobnicate.u32 %r;")


def test_lines_and_callers_of_inlined_code():
    text = f"""{HEAD}.visible .entry k(.param .u64 out) {{
.reg .u64 %p;
.loc 1 10 1
ld.param.u64 %p, [out];
.loc 2 7 1, function_name $L__info_string0, inlined_at 1 11 4
st.global.u32 [%p+64], 1;
ret;
}}
.file 1 "caller.py"
.file 2 "callee.py"
"""
    with pytest.raises(KernelFaults) as caught:
        run_text(text, launch_shape(1, 1), (np.zeros(1, np.uint32),))
    (fault,) = caught.value.faults
    assert (fault.file, fault.line) == ("callee.py", 7)
    assert "inlined from line 11" in fault.message


def test_wrong_arguments_for_a_text_are_counted():
    with pytest.raises(UserError, match="PTX kernel k has 1 parameters, and was given 2 arguments"):
        run_text(f"{HEAD}.visible .entry k(.param .u64 out) {{ ret; }}", launch_shape(1, 1), (1, 2))


def test_text_without_a_kernel():
    with pytest.raises(UnsupportedError, match="no kernel"):
        flatten(parse(HEAD + CALLED))


@pytest.mark.parametrize(
    ("statement", "size", "alignment"),
    [
        (".shared .align 16 .b8 tile[8][4]", 32, 16),
        (".extern .shared .align 4 .b8 dynamic[]", 0, 4),
        (".param .u64 .ptr .global .align 8 p", 8, 8),
        (".global .f64 x", 8, 8),
    ],
)
def test_declarations(statement, size, alignment):
    variable = parse_variable(statement)
    assert (variable.size, variable.alignment) == (size, alignment)


def test_more_threads_than_a_group_holds(monkeypatch):
    monkeypatch.setattr(execute, "LANE_BUDGET", 64)
    text = f"""{HEAD}.visible .entry k(.param .u64 out) {{ .reg .u64 %p; .reg .u32 %b, %s;
ld.param.u64 %p, [out]; mov.u32 %b, %ctaid.x; atom.global.add.u32 %s, [%p], %b; ret; }}"""
    out = np.zeros(1, np.uint32)
    run_text(text, launch_shape(50, 32), (out,))
    assert out[0] == 32 * sum(range(50))
