"""Ports are asked."""

import socket

from tokenfree.core.machine import answers, host_and_port


def test_whether_something_listens_at_an_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert answers(address, seconds=1.0) is True
    assert answers(address, seconds=1.0) is False
    assert answers(("name.invalid", 1), seconds=1.0) is None


def test_addresses_of_a_host_and_a_port() -> None:
    assert host_and_port("10.0.0.1:6379") == ("10.0.0.1", 6379)
    assert host_and_port("[::1]:6379") == ("::1", 6379)
    assert [host_and_port(text) for text in ("auto", ":1", "ray://head:port")] == [None] * 3
