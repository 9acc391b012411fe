"""The judge: what the GPU's compiler makes of a kernel."""

from nanoeuler.simt.judge.report import CompileReport, compile_report, format_report, gate

__all__ = ["CompileReport", "compile_report", "format_report", "gate"]
