"""Recognises files with secrets by their names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from pathlib import PurePath

SECRET_FOLDERS = frozenset(
    {".ssh", ".aws", ".gnupg", ".kube", ".azure", ".gcloud", ".oci", ".aliyun", ".password-store", "legacy_credentials"}
)
"""All files in these folders are left out."""
KEYS = (
    "*.pem",
    "*.key",
    "*.p8",
    "*.p12",
    "*.pfx",
    "*.pkcs12",
    "*.jks",
    "*.keystore",
    "*.kdb",
    "*.kdbx",
    "*.ppk",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "id_xmss*",
    "ssh_host_*_key",
    "secring.*",
    "*.ovpn",
)
DOTENV_FILES = (".env", ".env[._-]*", "*.env", ".envrc")
LOGINS = (
    ".netrc",
    "_netrc",
    ".authinfo",
    ".pypirc",
    ".npmrc",
    ".pgpass",
    "pgpass.conf",
    ".my.cnf",
    ".mylogin.cnf",
    ".git-credentials",
    ".htpasswd",
    ".smbcredentials",
    ".passwd-s3fs",
    ".s3cfg",
    ".boto",
    "rclone.conf",
    "password.*",
    "passwords.*",
    ".vault-token",
    ".vault_pass*",
    "vault_pass*",
    ".databrickscfg",
    ".terraformrc",
    "pip.conf",
    ".condarc",
    "*.publishsettings",
    "clearml.conf",
    ".comet.config",
    ".modal.toml",
    ".dockercfg",
    ".dockerconfigjson",
)
CLOUDS = (
    "credentials",
    "credentials.*",
    "*credentials.json",
    "client_secret*.json",
    "service[-_]account*.json",
    "serviceaccount*.json",
    "*[-_]service[-_]account.json",
    "*firebase-adminsdk*.json",
    "gc[lp]*[-_]key*.json",
    "access_tokens.db",
    "azureauth.json",
    "kaggle.json",
    "kubeconfig",
    "kubeconfig[._-]*",
    "*[._-]kubeconfig",
    "*.tfstate",
    "*.tfstate.*",
    "*.tfvars",
    "*.tfvars.json",
    "sa[-_]key.json",
    "*[-_]sa[-_]key.json",
    "gha-creds-*.json",
    "accesskeys.csv",
    "*_accesskeys.csv",
    "rootkey.csv",
)
SECRET_WORDS = (
    "secret",
    "secret.*",
    "secrets",
    "secrets.*",
    ".secret*",
    "*.secret",
    "*.secrets",
    "token",
    "*.token",
    "token.json",
    "token.txt",
    "token.pickle",
    "*[-_]token",
    "*[-_]token.txt",
    "*[-_]token.json",
    "*[-_]token.pickle",
    "stored_tokens",
    "api[-_]key",
    "*api[-_]key.txt",
    "*api[-_]key.json",
    "*api[-_]keys.json",
    "apikey",
    "apikey.*",
    "*_api_key",
)
SECRET_NAMES = (*KEYS, *DOTENV_FILES, *LOGINS, *CLOUDS, *SECRET_WORDS)
SECRET_PATHS = (
    "*/.docker/config.json",
    "*/containers/auth.json",
    "*/.composer/auth.json",
    "*/.config/gcloud/*",
    "*/.config/gh/hosts.yml",
    "*/.config/rclone/*",
    "*/wandb/settings",
    "*/.cargo/credentials*",
    "*/.m2/settings*.xml",
    "*/.snowsql/config",
    "*/.huggingface/token*",
    "*/huggingface/token*",
)
"""Patterns with folders: these file names alone are ordinary."""
NOT_SECRET = ("*.pub", "*.example", "*.sample", "*.template", "*.dist", "results_20*.token")
"""The last one is the captions of the Flickr30k dataset."""
SECRET_MODULES = ("secrets.*", "secret.py", "credentials.py", "passwords.py")
"""Modules that scripts import their passwords from."""
SOURCES = (
    "*.py",
    "*.pyi",
    "*.pyx",
    "*.ipynb",
    "*.c",
    "*.cc",
    "*.cpp",
    "*.cu",
    "*.cuh",
    "*.h",
    "*.hpp",
    "*.rs",
    "*.go",
    "*.js",
    "*.jsx",
    "*.ts",
    "*.tsx",
    "*.java",
    "*.kt",
    "*.scala",
    "*.jl",
    "*.r",
    "*.rb",
    "*.lua",
    "*.md",
    "*.rst",
)
"""Source files with such names usually handle secrets or tokens and do not contain them."""
GOOGLE_KEY = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]-(?=[0-9]*[a-f])[0-9a-f]{12}\.json")
"""The default name of a service account's key: the project and 12 hexadecimal digits. 12 decimal digits are a date."""
UUID = re.compile(r".*[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\.json")
BACKUP_SUFFIX = re.compile(r"(?<=.)(~|\.(bak|backup|old|orig|save|swp|swo|tmp))+$")
"""Suffixes of backup copies."""


def is_secret(path: PurePath) -> bool:
    """Decides by the name only, ignoring upper and lower case."""
    name = BACKUP_SUFFIX.sub("", path.name.lower().strip("#"))
    if _matches_any(name, NOT_SECRET):
        return False
    if (
        not SECRET_FOLDERS.isdisjoint(part.lower() for part in path.parts)
        or _matches_any(name, SECRET_MODULES)
        or _is_google_key(name)
    ):
        return True
    if _matches_any(name, SOURCES):
        return False
    return _matches_any(name, SECRET_NAMES) or _matches_any(
        "/".join(("", *path.parts[:-1], name)).lower(), SECRET_PATHS
    )


def _is_google_key(name: str) -> bool:
    return GOOGLE_KEY.fullmatch(name) is not None and UUID.fullmatch(name) is None


def _matches_any(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)
