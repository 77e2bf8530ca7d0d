"""A page read by the standard library's parser."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """Tags with their attributes, in order, those closed, and the words between them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.closed: list[str] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.crossed: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.closed.append(tag)
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.append(data)

    def with_class(self, name: str) -> int:
        return sum(name in (a.get("class") or "").split() for _, a in self.tags)


def parsed(page: str) -> Page:
    """The page, every tag of which is closed by its own."""
    found = Page()
    found.feed(page)
    found.close()
    assert found.open == [], "tags that nothing closes"
    assert found.crossed == [], "tags closed in another's place"
    return found
