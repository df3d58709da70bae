"""Makes the README of the package metadata from README.md. hatchling runs it (pyproject.toml).

A package index shows no file of the repository. If `address` is set, pictures and links point there. Without it a
picture becomes the text that it shows, and a link to a file becomes its text.
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"!\[([^\]]*)\]\(([\w./-]+\.svg)\)")
FILE_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


class IndexReadme(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        text = index_readme((root / "README.md").read_text(), root, self.config.get("address", ""))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def index_readme(text: str, root: Path, address: str) -> str:
    if address:
        text = PICTURE.sub(rf"![\1]({address.rstrip('/')}/\2)", text)
        return FILE_LINK.sub(rf"[\1]({address.rstrip('/')}/\2)", text)
    text = PICTURE.sub(lambda found: picture_text((root / found[2]).read_text()), text)
    return FILE_LINK.sub(r"\1", text)


def picture_text(svg: str) -> str:
    """The lines of a picture of tools/picture.py, as an indented block."""
    lines = re.findall(r"<text[^>]*>(.*?)</text>", svg)
    return "\n".join(f"    {unescape(re.sub('<[^>]*>', '', line))}" for line in lines)
