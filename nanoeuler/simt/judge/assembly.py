"""The text of a compiled kernel, PTX or SASS, as a list of instructions: what each is for, and its line in the source.

PTX opcodes are written in small letters and SASS opcodes in capitals, so an opcode tells which of the two it is.
Sources: PTX ISA, chapter "instruction set"; "CUDA Binary Utilities", chapter "instruction set reference".
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Instruction:
    """One instruction: opcode with its modifiers, and where the compiler says that it comes from."""

    opcode: str
    file: str | None = None
    line: int | None = None


SASS_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
SASS_LINE = re.compile(r'\s*//## File "(.*?)", line (\d+)')
PTX_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"(.*?)"', re.MULTILINE)
PTX_LINE = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
PTX_INSTRUCTION = re.compile(r"[{}\s]*(?:[\w$]+:\s*)*(?:@!?%?\w+\s+)?([a-z][a-z0-9_]*(?:\.[\w:]+)*)(?=\s|$)")


def read_sass(text: str) -> list[Instruction]:
    """Return the instructions that ``nvdisasm -g -c`` printed, padding left out.

    >>> read_sass("        /*00a0*/              @!P0 FADD.FTZ R0, R0, R1 ;")
    [Instruction(opcode='FADD.FTZ', file=None, line=None)]
    """
    instructions = []
    place: tuple[str | None, int | None] = (None, None)
    for row in text.splitlines():
        if found := SASS_LINE.match(row):
            place = found[1], int(found[2])
        elif row.lstrip().startswith(".section"):
            place = (None, None)
        elif (found := SASS_INSTRUCTION.match(row)) and found[1] != "NOP":
            instructions.append(Instruction(found[1], *place))
    return instructions


def read_ptx(text: str) -> list[Instruction]:
    """Return the instructions of a PTX module; directives are left out. Lines come from ``.loc``.

    >>> read_ptx("@%p1 add.rn.f32 %f1, %f2, %f3;")
    [Instruction(opcode='add.rn.f32', file=None, line=None)]
    """
    files = dict(PTX_FILE.findall(text))
    instructions = []
    place: tuple[str | None, int | None] = (None, None)
    statement = ""
    for row in text.splitlines():
        code = row.split("//")[0].strip()
        if found := PTX_LINE.match(code):
            place = files.get(found[1]), int(found[2]) or None
        elif code in ("{", "}") or (code.startswith(".") and not code.endswith(";")):
            statement = ""  # a function's head, or a directive without a semicolon
        else:
            *complete, statement = f"{statement} {code}".split(";")
            opcodes = (PTX_INSTRUCTION.match(part) for part in complete)
            instructions += [Instruction(found[1], *place) for found in opcodes if found]
    return instructions


SASS_FAMILIES = {
    "float64": "DADD DFMA DMNMX DMUL DSET DSETP",
    "float32": "FADD FADD2 FADD32I FCHK FFMA FFMA2 FFMA32I FMNMX FMNMX3 FMUL FMUL2 FMUL32I FSEL FSET FSETP FSWZADD",
    "float16": "HADD2 HADD2_32I HFMA2 HFMA2_32I HMNMX2 HMUL2 HMUL2_32I HSET2 HSETP2 VHMNMX",
    "tensor core": "BMMA DMMA HGMMA HMMA IGMMA IMMA OMMA QGMMA QMMA UTCHMMA UTCIMMA UTCOMMA UTCQMMA WARPGROUP",
    "special function": "MUFU RRO",
    "integer": (
        "BMSK BREV FLO IABS IADD IADD2 IADD3 IADD32I IDP IDP4A IMAD IMNMX IMUL ISCADD ISET ISETP LEA LOP LOP3 LOP32I "
        "PLOP3 POPC SGXT SHF SHL SHR VABSDIFF VABSDIFF4 VIADD VIADDMNMX VIMNMX VIMNMX3"
    ),
    "conversion": "F2F F2FP F2I F2IP FRND I2F I2FP I2I I2IP",
    "move": "B2R CS2R MOV MOV32I MOVM P2R PRMT R2B R2P R2UR S2R S2UR SEL UR2R",
    "global memory": "CCTL CCTLL LD LDG ST STG",
    "shared memory": "LDS LDSM STS STSM",
    "local memory": "LDL STL",
    "constant memory": "LDC LDCU",
    "async copy": "ARRIVES BLKCP DEPBAR LDGDEPBAR LDGSTS SYNCS TMALDG TMASTG",
    "atomic": "ATOM ATOMG ATOMS RED REDAS REDG",
    "warp": "ELECT MATCH REDUX SHFL VOTE VOTEU WARPSYNC",
    "barrier": "BAR CGAERRBAR ERRBAR FENCE MEMBAR",
    "control": (
        "ACQBULK BMOV BPT BRA BREAK BRX BRXU BSSY BSYNC CALL ENDCOLLECTIVE EXIT JMP JMX KILL LEPC NANOSLEEP PREEXIT "
        "RET RPCMOV YIELD"
    ),
}
PTX_FAMILIES = {  # by the first word; what is not here goes by its type
    "tensor core": "mma wmma wgmma tcgen05",
    "special function": "cos ex2 lg2 rcp rsqrt sin sqrt tanh",
    "conversion": "cvt",
    "move": "cvta isspacep mov prmt selp slct",
    "global memory": "discard ld ldu prefetch prefetchu st",
    "shared memory": "ldmatrix mapa movmatrix stmatrix",
    "async copy": "cp mbarrier",
    "atomic": "atom red",
    "warp": "activemask elect match redux shfl vote",
    "barrier": "bar barrier fence membar",
    "control": "bra brkpt brx call exit griddepcontrol nanosleep ret setmaxnreg trap",
}
FAMILIES = (*SASS_FAMILIES, "other")
FAMILY = {name: family for table in (SASS_FAMILIES, PTX_FAMILIES) for family in table for name in table[family].split()}
STATE_SPACES = {  # where a PTX load or store goes; global if it names none of these
    "shared": "shared memory",
    "local": "local memory",
    "const": "constant memory",
    "param": "constant memory",
}
PTX_TYPES = {  # integer if it names none of these
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "f16x2": "float16",
    "bf16": "float16",
    "bf16x2": "float16",
}


def family(opcode: str) -> str:
    """Return what an instruction is for: one of ``FAMILIES``.

    Generic loads and stores count as global memory, parameters as constant memory. A SASS instruction may be used for
    something else than its name says (``IMAD.MOV`` moves, ``HFMA2`` of zeros loads a constant); its name counts.

    >>> family("LDS.128"), family("ld.shared.f32"), family("fma.rn.f32")
    ('shared memory', 'shared memory', 'float32')
    """
    name, *modifiers = opcode.split(".")
    if opcode[0].isupper():
        return FAMILY.get(name) or FAMILY.get(name.removeprefix("U"), "other")  # U...: the warp's uniform registers
    if name in ("ld", "st"):
        spaces = (STATE_SPACES.get(modifier.split("::")[0]) for modifier in modifiers)
        return next((space for space in spaces if space), "global memory")
    return FAMILY.get(name) or next((PTX_TYPES[m] for m in modifiers if m in PTX_TYPES), "integer")


def is_float64(opcode: str) -> bool:
    """Return whether an instruction computes with float64 or converts to or from it.

    Loads, stores, moves and selections are not counted: they carry 64 bits of anything.

    >>> is_float64("DFMA"), is_float64("F2F.F64.F32"), is_float64("LDG.E.64"), is_float64("ld.global.f64")
    (True, True, False, False)
    """
    name, *modifiers = opcode.split(".")
    if opcode[0].isupper():
        approximation = name == "MUFU" and any(modifier.endswith("64H") for modifier in modifiers)
        return name in SASS_FAMILIES["float64"].split() or name == "DMMA" or "F64" in modifiers or approximation
    return "f64" in modifiers and family(opcode) not in ("move", *(f for f in SASS_FAMILIES if f.endswith("memory")))
