"""Makes the catalogues that gettext reads (.mo) from the ones that people write (.po), without any system tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from django.conf import settings
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        """Skips catalogues that are newer than their source."""
        for source in sorted(source for root in settings.LOCALE_PATHS for source in Path(root).rglob("*.po")):
            if compile_catalogue(source):
                self.stdout.write(f"compiled {source.parent.parent.name}/{source.stem}")


def compile_catalogue(source: Path) -> bool:
    """Writes the .mo beside `source` (.po). False when the one that is there is newer."""
    target = source.with_suffix(".mo")
    if target.exists() and target.stat().st_mtime > source.stat().st_mtime:
        return False
    with source.open("rb") as lines:
        catalogue = read_po(lines)
    unfinished = target.with_suffix(".tmp")
    with unfinished.open("wb") as binary:
        write_mo(binary, catalogue)
    unfinished.replace(target)  # a process that starts meanwhile never reads half a catalogue
    return True
