"""Certificates for the tests: an authority, and what it signs, made by the `openssl` command."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

OPENSSL_SECONDS = 30.0

# `openssl ca` signs for any period in the past with every version; `openssl x509` does not.
_CONFIG = """
[ca]
default_ca = authority
[authority]
database = {directory}/index
new_certs_dir = {directory}
certificate = {directory}/authority.pem
private_key = {directory}/authority.key
default_md = sha256
policy = any
unique_subject = no
rand_serial = yes
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
[for_authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
subjectKeyIdentifier = hash
"""
VALID = ("20200101000000Z", "20491231000000Z")
EXPIRED = ("20200101000000Z", "20200102000000Z")


class NoOpenSSLError(Exception):
    """There is no `openssl` command here."""


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key, in one file and in one each (PEM, PKCS #8)."""

    certificate: Path
    key: Path
    both: Path

    def server_context(self) -> ssl.SSLContext:
        """The context of a server that shows it, and wants none."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.both)
        return context


class Authority:
    """Signs certificates; its own is `file`. Everything is below `directory`."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self._directory = directory
        self._config = directory / "config"
        self._config.write_text(_CONFIG.format(directory=directory))
        (directory / "index").touch()
        self.file = directory / "authority.pem"
        request = self._request("authority", name, "-x509", "-extensions", "for_authority")
        request.replace(self.file)

    def sign(
        self, name: str, *, hosts: tuple[str, ...] = (), period: tuple[str, str] = VALID
    ) -> Certificate:
        """A certificate of the subject `name`; `hosts` as in `DNS:localhost`, `IP:127.0.0.1`."""
        request = self._request(name, name)
        certificate, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        extensions = self._directory / f"{name}.extensions"
        alternatives = f"subjectAltName={','.join(hosts)}\n" if hosts else ""
        extensions.write_text(
            "basicConstraints=CA:FALSE\nauthorityKeyIdentifier=keyid\n" + alternatives
        )
        start, end = period
        self._openssl(
            *("ca", "-batch", "-notext", "-config", str(self._config)),
            *("-startdate", start, "-enddate", end, "-extfile", str(extensions)),
            *("-in", str(request), "-out", str(certificate)),
        )
        both = self._directory / f"{name}.both"
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        return Certificate(certificate, key, both)

    def client_context(self, shown: Certificate | None = None) -> ssl.SSLContext:
        """A client's context that trusts this authority alone, and shows a certificate if given."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.file)
        if shown is not None:
            context.load_cert_chain(shown.certificate, shown.key)
        return context

    def _request(self, file: str, name: str, *more: str) -> Path:
        """A new key, and a request for a certificate (or the certificate itself) of `name`."""
        out = self._directory / f"{file}.request"
        self._openssl(
            *("req", "-new", "-config", str(self._config), "-subj", f"/CN={name}", "-nodes"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", str(self._directory / f"{file}.key"), "-out", str(out), *more),
        )
        return out

    def _openssl(self, *arguments: str) -> None:
        command = shutil.which("openssl")
        if command is None:
            raise NoOpenSSLError("no `openssl` command to make certificates with")
        done = subprocess.run(
            [command, *arguments],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=OPENSSL_SECONDS,
        )
        if done.returncode:
            raise RuntimeError(f"openssl {' '.join(arguments)}:\n{done.stderr}")
