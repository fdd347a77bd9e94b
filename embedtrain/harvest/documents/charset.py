"""Which encoding an HTML page is in, as browsers tell it."""

import codecs
import re

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CHARSET = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)|^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]+)""",
    re.IGNORECASE,
)
# What a label means to browsers where Python takes it by its name (WHATWG Encoding Standard, section 4.2).
_LABELS = {
    **dict.fromkeys(("iso-8859-1", "iso8859-1", "latin1", "latin-1", "ascii", "us-ascii"), "windows-1252"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis"), "cp932"),
    **dict.fromkeys(("utf-16", "utf-16le", "utf-16be", "unicode"), "utf-8"),  # it could not be read as ASCII
}


def encoding(content: bytes) -> str:
    """The encoding of a page: by its byte-order mark, its meta charset or XML declaration, else UTF-8."""
    for mark, name in _BOMS:
        if content.startswith(mark):
            return name
    match = _CHARSET.search(content[:4096])
    if match is None:
        return "utf-8"
    label = (match[1] or match[2]).decode("ascii").lower()
    return _LABELS.get(label, label)
