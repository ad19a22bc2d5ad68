"""What PyInstaller cannot see: which modules the names of zkwire are loaded from."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

hiddenimports = collect_submodules(
    "zkwire",
    filter=lambda name: (
        not name.startswith(("zkwire._pyinstaller", "zkwire.testing.pytest_plugin"))
    ),
)
datas = collect_data_files("zkwire")
