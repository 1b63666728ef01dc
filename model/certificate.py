"""A certificate ties a verdict to one document, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass

from .report import Report, Verdict


class CertificateError(ValueError):
    """A schedule that is not the one that was proved, or was not proved; says which."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """``digest``: SHA-256 of the canonical document (``document.digest``)."""

    digest: str
    verdict: Verdict
    assumptions: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    passes: int

    def require(self, digest: str) -> None:
        """Raise unless this certifies the schedule with that digest as proved."""
        if self.verdict is not Verdict.PROVED:
            raise CertificateError(f"the schedule is {self.verdict}, not proved: it is not run")
        if self.digest != digest:
            raise CertificateError(
                f"the certificate is for document {self.digest[:12]}…, this one is {digest[:12]}…: "
                "check it again"
            )


def certify(report: Report) -> Certificate:
    """The certificate of a report, whatever its verdict (``require`` looks at it)."""
    return Certificate(
        report.digest, report.verdict, report.assumptions, report.versions, report.passes
    )
