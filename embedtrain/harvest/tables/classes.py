"""Pairs of texts that belong together, of a class or a cluster of duplicates: as many as wanted, never all of them."""

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from embedtrain.harvest.identity import number, query_key

# Pairs a text, where nobody says how many a class may give: linear in the texts, whatever the size of the class.
PAIRS_PER_TEXT = 10
_CACHE_KIB = 32 << 10


class Member(NamedTuple):
    """A text of a class, and when it was written where that is known."""

    text: str
    time: float | None


def ring(count: int, most: int) -> Iterator[tuple[int, int]]:
    """`most` different unordered pairs out of `count` things, or all there are; no thing with itself.

    The things stand in a ring. First all pairs of neighbours, then those two apart, and so on: each distance has `count`
    pairs (half of it where that is the way around), and all of them together are the count * (count - 1) / 2 there are.
    Of a distance those that share nothing come first, so that a few pairs are of many things.
    """
    left = most
    for distance in range(1, count // 2 + 1):
        starts = count // 2 if 2 * distance == count else count
        for half in (0, 1):
            for block in range(half * distance, starts, 2 * distance):
                for start in range(block, min(block + distance, starts)):
                    if left <= 0:
                        return
                    left -= 1
                    yield start, (start + distance) % count


class Classes:
    """Texts by their class, in a temporary file; a class is in memory while its pairs are made."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._db = sqlite3.connect("", isolation_level=None)  # a file of SQLite's own, gone with it
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        # Places come in any order: they lie apart from the texts, so that what is moved is small.
        self._db.execute(
            "CREATE TABLE members (class TEXT, place INTEGER, n INTEGER, PRIMARY KEY (class, place)) WITHOUT ROWID"
        )
        self._db.execute("CREATE TABLE texts (n INTEGER PRIMARY KEY, text TEXT, time REAL)")
        self._db.execute("BEGIN")
        self._count = 0

    def add(self, name: str, text: str, time: float | None) -> bool:
        """Add a text to a class; False where the class has it already, however it is spaced and capitalised."""
        # The place in the ring is a hash: what is added later parts two neighbours and moves nobody else.
        place = number(f"{self._seed}\0{name}\0{query_key(text)}")
        made = self._db.execute("INSERT OR IGNORE INTO members VALUES (?, ?, ?)", (name, place, self._count))
        if made.rowcount != 1:
            return False
        self._db.execute("INSERT INTO texts VALUES (?, ?, ?)", (self._count, text, time))
        self._count += 1
        return True

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Classes by name, with how many texts each has."""
        yield from self._db.execute("SELECT class, COUNT(*) FROM members GROUP BY class ORDER BY class")

    def members(self, name: str) -> list[Member]:
        """The texts of a class in the order of its ring."""
        found = self._db.execute(
            "SELECT text, time FROM members JOIN texts USING (n) WHERE class = ? ORDER BY place", (name,)
        )
        return [Member(*row) for row in found]

    def pairs(self, name: str, most: int | None) -> Iterator[tuple[Member, Member]]:
        """`most` pairs of a class, PAIRS_PER_TEXT a text where it is None, or all there are where these are fewer."""
        members = self.members(name)
        for left, right in ring(len(members), len(members) * PAIRS_PER_TEXT if most is None else most):
            yield members[left], members[right]

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
