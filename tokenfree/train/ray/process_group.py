"""The process group of workers: its store and its connections use one address, not all interfaces."""

import datetime
import os
import socket
from ipaddress import ip_address

import psutil
import torch.distributed as dist


def listen(address: str) -> socket.socket:
    """Return a socket that listens on a free port of `address`.

    On rank 0, pass it to `join` for the store.
    """
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
    """Join the default process group, with a store that listens on one address, not on all interfaces."""
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
    """Make the connections between workers use the interface of `address`, unless the environment names another one."""
    # Gloo would use the address of the host name, which other machines often cannot reach. NCCL never uses
    # loopback.
    interface = interface_of(address)
    if interface is None:
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if ip_address(address).is_loopback:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")


def interface_of(address: str) -> str | None:
    interfaces = psutil.net_if_addrs().items()
    return next(
        (name for name, addresses in interfaces if any(entry.address == address for entry in addresses)), None
    )
