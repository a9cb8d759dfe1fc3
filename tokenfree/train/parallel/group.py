"""How workers find each other: torch's process group, whose store listens on one address and not on all of them."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import socket
from ipaddress import ip_address

import torch.distributed as dist

_SIOCGIFADDR = 0x8915  # of Linux: the address of an interface


def listen(address: str) -> socket.socket:
    """A socket on a free port of `address`, for the store that rank 0 gives to `join`."""
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.bind((address, 0))
    listener.listen()
    return listener


def join(
    backend: str,
    *,
    rank: int,
    world_size: int,
    address: str,
    port: int,
    listener: socket.socket | None = None,
    timeout: datetime.timedelta,
) -> None:
    """Join the default process group. The store of its `init_process_group` would listen on all interfaces.

    Args:
        backend: "gloo" or "nccl".
        address, port: of the store.
        listener: on rank 0, what `listen` gave; it is closed with the group.
        timeout: of every collective operation.
    """
    store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
        address,
        port,
        world_size,
        is_master=listener is not None,
        timeout=timeout,
        master_listen_fd=None if listener is None else listener.detach(),
    )
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timeout)


def keep_to(address: str) -> None:
    """Have the connections between workers use the interface of `address`, where the environment names no other.

    Gloo takes the address of the host name by default, which on many systems is one that other machines cannot reach.
    NCCL chooses well among the interfaces of a cluster, but never takes loopback by itself.
    """
    interface = interface_of(address)
    if interface is None:
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if ip_address(address).is_loopback:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")


def interface_of(address: str) -> str | None:
    """The network interface of this machine that has this IPv4 address; None where it cannot be told (macOS)."""
    if ":" in address:
        return None
    wanted = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                if fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, name.encode().ljust(256, b"\0"))[20:24] == wanted:
                    return name
    return None
