"""The documentation in a real browser: Debian's Chromium, driven by Selenium."""
