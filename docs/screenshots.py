"""Makes the pictures of the page in docs/images with headless Chromium.

`python docs/screenshots.py` shows a made-up ring; `python docs/screenshots.py --url http://127.0.0.1:8000` takes those
pictures that a real `ropeway serve` can give, while a few other clients keep it at work. The page uses the reader's own
fonts; these pictures use Inter where it is installed (Debian: fonts-inter).
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from page.browser import Pipe, Tab, chromium, find_chromium  # noqa: E402
from page.fake_ring import Load, ring_at  # noqa: E402
from page.fake_server import Answer, Script, living, reply, say_json, serving  # noqa: E402

QUESTION = "What is an aerial ropeway?"
DONE = "['done', 'failed'].includes(document.querySelector('.turn:last-child')?.dataset.phase)"
SAMPLES = "document.querySelector('.spark-line').getAttribute('d').split('L').length >= %d"
UNDER_WAY = """((cabins, walls) => cabins.some((cabin) => walls.every((wall) => {
    const [a, b] = [cabin.getBoundingClientRect(), wall.getBoundingClientRect()];
    return Math.max(a.left - b.right, b.left - a.right, a.top - b.bottom, b.top - a.bottom) > 10;
})))([...document.querySelectorAll('.cabin .shell')], [...document.querySelectorAll('.walls')])
&& (window.requestAnimationFrame = () => 1, true)"""
"""A cabin is well out on a rope, and stays there for the picture."""
FAST = 10


def shot(tab: Tab, path: Path, selector: str | None = None) -> None:
    """The window, or one element of the page with a little room."""
    tab.run("document.activeElement.blur()")
    if selector is None:
        tab.picture(path)
    else:
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        x, y, width, height = tab.run(f"[{box}.x, {box}.y + scrollY, {box}.width, {box}.height]")
        tab.picture(path, clip=(max(0, x - 16), max(0, y - 8), width + 32, height + 16))
    print(f"{path.name}: {path.stat().st_size // 1000} kB")


@contextmanager
def others(url: str, key: str, clients: int) -> Iterator[None]:
    """Other clients, who ask for one long reply after the other."""
    stop = threading.Event()

    def ask(number: int) -> None:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/models", headers=headers)) as models:
            model = json.load(models)["data"][0]["id"]
        prompt = f"Tell the story of the {number + 2} engineers who built a ropeway over the mountain. " * 12
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 400, "stream": True}
        while not stop.is_set():
            request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request) as reply:
                while not stop.is_set() and reply.readline():
                    pass

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def chat(tab: Tab, question: str = QUESTION) -> None:
    """Asks, and waits for the reply; lets the sparkline grow meanwhile."""
    tab.until("document.querySelector('#model').innerText", within_s=60)
    tab.click("#say")
    tab.type(question)
    tab.press("Enter")
    tab.until(DONE, within_s=300)
    tab.run("scrollTo(0, 0)")


def set_up(tab: Tab, scheme: str, width: int, height: int, scale: float) -> None:
    """Light or dark, and a size."""
    tab.size(width, height, scale, mobile=width < 500)
    tab.prefer(scheme)


def views(browser: Pipe, url: str, out: Path, samples: int, key: str, fast: int) -> None:
    """What any server can show: a desk by day and by night, a phone, and where the time went."""
    for name, scheme, width, height, scale in (
        ("page-light", "light", 1280, 1205, 1.5),
        ("page-dark", "dark", 1280, 1205, 1.5),
        ("page-phone", "light", 360, 780, 2.0),
    ):
        tab = Tab(browser)
        set_up(tab, scheme, width, height, scale)
        if fast > 1:
            tab.hurry(fast)
        tab.open(url)
        if key:
            tab.until("!document.querySelector('#key-form').hidden")
            tab.click("#key-input")
            tab.type(key)
            tab.press("Enter")
        chat(tab)
        tab.until(SAMPLES % samples, within_s=120)
        if tab.run("document.querySelector('#scene').dataset.moving") == "yes":
            tab.until(UNDER_WAY)
        shot(tab, out / f"{name}.png")
        if name == "page-light":
            shot(tab, out / "timeline.png", ".timeline")
        tab.close()


def scenes(browser: Pipe, out: Path) -> None:
    """What needs a script: other rings, and a ring that is not whole."""
    busy = Load(streams=6, parts=4, rows=1024, per_s=20)

    def broken() -> Answer:
        detail = "rank 1 lost (peer_lost): the connection to 10.0.0.17:7400 ended"
        return say_json(ring_at(9, 3) | {"state": "restarting", "detail": detail, "streams": []})

    todo: tuple[tuple[str, str, Callable[[], Answer], str], ...] = (
        ("ring-6", "dark", living(6, busy), UNDER_WAY),
        ("ring-12", "light", living(12, Load(streams=8, rows=8, per_s=12)), UNDER_WAY),
        ("restarting", "light", broken, "document.body.dataset.state === 'restarting'"),
    )
    for name, scheme, ring, ready in todo:
        with serving(Script(ring)) as fake:
            tab = Tab(browser)
            set_up(tab, scheme, 1280, 680, 1.5)
            tab.open(fake.url)
            tab.until(ready)
            shot(tab, out / f"{name}.png")
            tab.close()


def main() -> None:
    """Reads the arguments; needs a Chromium (ROPEWAY_CHROMIUM, or on the PATH)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a running `ropeway serve`; without it a made-up ring is shown")
    parser.add_argument(
        "--api-key", type=Path, help="a file whose first line is the key, where the server asks for one"
    )
    parser.add_argument("--clients", type=int, default=2, help="that keep a real ring at work meanwhile")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    args = parser.parse_args()
    path = find_chromium()
    if path is None:
        parser.error("no Chromium found: install one, or name it in ROPEWAY_CHROMIUM")
    key = args.api_key.read_text().split()[0] if args.api_key else ""
    args.out.mkdir(parents=True, exist_ok=True)
    with chromium(path) as browser, ExitStack() as stack:
        if args.url:
            with others(args.url.rstrip("/"), key, args.clients):
                views(browser, args.url, args.out, 20, key, 1)
            return
        ring = living(3, Load(streams=3, rows=3), speed=FAST)
        fake = stack.enter_context(serving(Script(ring, [reply(pause_s=0.01)])))
        views(browser, fake.url, args.out, 60, "", FAST)
        scenes(browser, args.out)


if __name__ == "__main__":
    main()
