#!/usr/bin/env bash
# Makes a Docker image with Debian's ZooKeeper in it where nothing can be pulled, and runs a command
# while there is an engine:
#
#   tests/make_image.sh [TAG [COMMAND...]]
#
# TAG is zkwire-test-zookeeper by default; an image that exists under it is kept as it is. If no
# engine answers and this is root, a dockerd runs as long as this script does. Packages that are
# missing (docker.io, debootstrap) are installed if that is allowed. The container starts ZooKeeper
# in the foreground on port 2181 and understands the variables of the official image that
# tests/support/docker_servers.py sets: ZOO_MY_ID, ZOO_SERVERS, ZOO_CFG_EXTRA, JVMFLAGS.
set -euo pipefail

tag=${1:-zkwire-test-zookeeper}
shift || true

scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/zkwire-image.XXXXXX")
engine=

say() {
    printf 'make_image: %s\n' "$*" >&2
}

clean_up() {
    if [[ -n $engine ]]; then
        say "stopping dockerd, process $engine"
        kill "$engine" 2>/dev/null && wait "$engine" || true
    fi
    rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT

need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null && return
    if [[ $EUID != 0 ]] || ! command -v apt-get >/dev/null; then
        say "there is no $1, and this may not install the Debian package $2"
        return 1
    fi
    say "installing the Debian package $2"
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq --yes install --no-install-recommends "$2" >/dev/null
    hash -r
}

start_engine() {
    if [[ $EUID != 0 ]]; then
        say "no Docker engine answers, and only root can start one"
        return 1
    fi
    need dockerd docker.io
    # In a session of its own, so that Ctrl-C reaches the command first and the engine by clean_up.
    setpriv --pdeathsig TERM setsid dockerd >"$scratch/dockerd.log" 2>&1 &
    engine=$!
    say "starting dockerd, process $engine"
    for _ in {1..150}; do
        docker info >/dev/null 2>&1 && return
        kill -0 "$engine" 2>/dev/null || break
        sleep 0.2
    done
    say "dockerd does not answer; the end of its log:"
    tail -n 20 "$scratch/dockerd.log" >&2
    return 1
}

# The mirror and the release that this machine itself uses.
package_source() {
    local codename
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
        sed -n "s/^$codename //p" | head -n 1 | sed "s/^/$codename /"
}

make_root() { # make_root DIRECTORY
    local release mirror
    need debootstrap debootstrap
    [[ -n $(package_source) ]] || apt-get -qq update
    read -r release mirror < <(package_source)
    # The server is in libzookeeper-java; the package zookeeper would add a desktop's Java.
    debootstrap --variant=minbase --include=default-jre-headless,libzookeeper-java \
        "$release" "$1" "$mirror" >"$scratch/debootstrap.log" 2>&1 || {
        say "debootstrap failed; the end of its output:"
        tail -n 20 "$scratch/debootstrap.log" >&2
        return 1
    }
    cat >"$1/usr/local/bin/zookeeper-foreground" <<'END'
#!/bin/sh
# Writes zoo.cfg from the environment and becomes ZooKeeper.
set -efu
mkdir -p /data
{
    echo dataDir=/data
    echo tickTime=200
    echo initLimit=50
    echo syncLimit=10
    echo maxClientCnxns=0
    echo admin.enableServer=false
    echo '4lw.commands.whitelist=*'
    printf '%s\n' ${ZOO_SERVERS:-'server.1=localhost:2888:3888;2181'} ${ZOO_CFG_EXTRA:-}
} >/data/zoo.cfg
echo "${ZOO_MY_ID:-1}" >/data/myid
exec java ${JVMFLAGS:--Dzookeeper.extendedTypesEnabled=true} \
    -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
    org.apache.zookeeper.server.quorum.QuorumPeerMain /data/zoo.cfg
END
    chmod 755 "$1/usr/local/bin/zookeeper-foreground"
}

make_image() {
    say "making the image $tag"
    make_root "$scratch/root"
    tar --create --directory="$scratch/root" --exclude=./dev --exclude=./var/cache/apt \
        --exclude=./var/lib/apt/lists --exclude=./usr/share/doc . |
        docker import --change 'ENTRYPOINT ["zookeeper-foreground"]' --change 'EXPOSE 2181' \
            - "$tag" >/dev/null
}

need docker docker.io
docker info >/dev/null 2>&1 || start_engine
if docker image inspect "$tag" >/dev/null 2>&1; then
    say "the image $tag exists"
else
    make_image
fi
if (($# > 0)); then
    "$@"
fi
