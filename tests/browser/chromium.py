"""Debian's Chromium without a window, and what it takes to have one."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OPTIONS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
"""As root, and in containers, there is neither a sandbox nor much shared memory."""


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
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        driver.get(page if isinstance(page, str) else page.as_uri())
        yield driver
        complaints = driver.get_log("browser")
        assert complaints == [], complaints
    finally:
        driver.quit()
