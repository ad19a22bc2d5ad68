"""What PyInstaller cannot see: which modules the names of zkwire are loaded from."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

# The one needs PyInstaller, the other pytest.
LEFT_OUT = ("zkwire._pyinstaller", "zkwire.testing.pytest_plugin")

hiddenimports = collect_submodules("zkwire", filter=lambda name: not name.startswith(LEFT_OUT))
datas = collect_data_files("zkwire")
