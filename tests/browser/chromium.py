"""Debian's Chromium without a window, and what it takes to have one."""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OPTIONS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
"""As root, and in containers, there is neither a sandbox nor much shared memory."""


LIMIT = 300.0
"""Seconds for what a page does by itself, on a machine with much else to do."""

SHOWN = "return performance.getEntriesByName('play-shown').length"


def missing() -> list[str]:
    """What this machine lacks; empty if a browser can be started."""
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return lacking + ["selenium"] * (importlib.util.find_spec("selenium") is None)


@contextmanager
def browser(page: Path | str, *, width: int = 1200, scripts: bool = True) -> Iterator[Any]:
    """A browser that shows this file or address, in a window of this many pixels."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver: Any = webdriver.Chrome(options=options, service=service)
    try:
        set_screen(driver, width)
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        driver.get(page if isinstance(page, str) else page.as_uri())
        yield driver
        complaints = driver.get_log("browser")
        assert complaints == [], complaints
    finally:
        driver.quit()


def set_screen(driver: Any, width: int, *, dark: bool = False) -> None:
    """From now on the window has this many pixels, and the reader prefers light or dark colours."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def wait(driver: Any, runs: int = 1) -> None:
    """Until the playground has shown so many runs."""
    latest = time.monotonic() + LIMIT
    while driver.execute_script(SHOWN) < runs:
        status = driver.find_element("id", "play-status").text
        assert time.monotonic() < latest, status
        time.sleep(0.02)  # asks again, decides nothing
