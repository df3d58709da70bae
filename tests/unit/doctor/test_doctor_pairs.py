"""Pairs of nodes: who meets whom, what a measurement means, and a real measurement over loopback."""

import itertools
import threading

import pytest

from echelon.doctor import coordinator, link, pairs
from echelon.doctor.model import Node, Result, Severity

GOOD = {"stage": "done", "bandwidth": 1e9, "latency": 5e-5, "largest_sent": 1500, "path_mtu": 1500}


def cluster(*names, mtus=None, **changes):
    """Nodes whose connections are good, except those in `changes`, such as n1_n2={...}."""
    found = []
    for name in names:
        results = {"network": Result(check="network", facts={"mtu": (mtus or {}).get(name, 1500)})}
        for peer in names:
            if peer != name:
                facts = {**GOOD, **changes.get(f"{name}_{peer}", {})}
                results[f"pairs/{peer}"] = Result(check=f"pairs/{peer}", facts=facts)
        found.append(Node(name=name, results=results))
    return found


@pytest.mark.parametrize("count", range(2, 12))
def test_each_node_meets_each_other_once(count):
    met = list(pairs.rounds(count))
    assert len(met) == (count - 1 if count % 2 == 0 else count)
    for one in met:
        nodes = list(itertools.chain.from_iterable(one))
        assert len(nodes) == len(set(nodes)), "the pairs of a round are disjoint"
    everything = sorted(itertools.chain.from_iterable(met))
    assert everything == sorted(itertools.combinations(range(count), 2))


def test_one_node_has_no_pairs():
    assert list(pairs.rounds(1)) == [[]]


def test_healthy_cluster_has_no_finding():
    assert pairs.judge_pairs(cluster("n1", "n2", "n3")) == []


def test_firewall_in_one_direction_names_the_direction():
    broken = {"stage": "connect", "problem": "timed out", "bandwidth": None}
    [found] = pairs.judge_pairs(cluster("n1", "n2", "n3", n1_n2=broken))
    assert (found.severity, found.node, found.what) == (Severity.ERROR, "n1 -> n2", "cannot connect to n2")
    assert found.why == "timed out"
    assert found.excludes == ("n2",)


def test_node_that_no_other_reaches_is_blamed():
    broken = {"stage": "connect", "problem": "timed out"}
    [found] = pairs.judge_pairs(cluster("n1", "n2", "n3", n1_n2=broken, n3_n2=broken))
    assert found.node == "n2"
    assert found.what == "cannot connect: from n1, n3"
    assert found.excludes == ("n2",)


def test_lost_large_messages_point_to_the_mtu():
    stalled = {"stage": "bandwidth", "problem": "timed out"}
    [found] = pairs.judge_pairs(cluster("n1", "n2", "n3", n1_n2=stalled))
    assert found.what == "large messages stall to n2"
    assert "MTU" in found.fix


def test_slow_node_is_blamed():
    slow = {"bandwidth": 1.2e6}
    changes = {"n1_n2": slow, "n2_n1": slow, "n2_n3": slow, "n3_n2": slow}
    [found] = pairs.judge_pairs(cluster("n1", "n2", "n3", **changes))
    assert (found.severity, found.node) == (Severity.ERROR, "n2")
    assert found.what == "slow network: 9.6 Mbit/s on 4 connections"


def test_one_slow_direction_is_named():
    [found] = pairs.judge_pairs(cluster("n1", "n2", "n3", n1_n2={"bandwidth": 50e6}))
    assert (found.severity, found.node) == (Severity.WARNING, "n1 -> n2")
    assert found.excludes == ()


def test_fast_connection_is_never_slow():
    assert not pairs.is_slow(2e8, 1e11)
    assert pairs.is_slow(1e8, 1e11)
    assert pairs.is_slow(1e6, 1e6)


def test_high_latency_names_the_node():
    late = {"latency": 0.03}
    changes = {"n1_n2": late, "n2_n1": late, "n2_n3": late, "n3_n2": late}
    [found] = pairs.judge_pairs(cluster("n1", "n2", "n3", **changes))
    assert (found.severity, found.node, found.what) == (Severity.WARNING, "n2", "latency of 30.0 ms")


def test_other_mtu_names_the_node():
    [found] = pairs.judge_pairs(cluster("n1", "n2", "n3", mtus={"n2": 1400}))
    assert (found.node, found.what) == ("n2", "MTU 1400")
    assert "1500" in found.why


def test_lost_full_packets_are_reported_if_the_interfaces_agree():
    [found] = pairs.judge_pairs(cluster("n1", "n2", "n3", n1_n2={"path_mtu": 1400}))
    assert found.what == "packets of 1500 bytes to n2 are lost"


def test_blocked_udp_is_no_finding():
    assert pairs.judge_pairs(cluster("n1", "n2", n1_n2={"path_mtu": 0})) == []


def test_smallest_cover_takes_the_node_with_most_bad_pairs():
    assert pairs.smallest_cover([("n1", "n2"), ("n3", "n2"), ("n4", "n5")]) == ("n2", "n5")


def measured(token, other_token):
    endpoint, listener, packets = link.open_sockets("127.0.0.2")
    served = {}
    server = threading.Thread(target=lambda: served.update(link.serve(listener, packets, token, 3.0)))
    server.start()
    facts = link.measure(endpoint, "127.0.0.1", other_token)
    server.join()
    listener.close()
    packets.close()
    return facts, served


def test_real_connection_is_measured():
    facts, served = measured(b"k" * 32, b"k" * 32)
    assert served == {}
    assert facts["stage"] == "done"
    assert facts["bandwidth"] > 1e6
    assert facts["latency"] < 1
    assert facts["path_mtu"] == facts["largest_sent"] == 9000


def test_connection_without_the_key_is_refused():
    facts, served = measured(b"k" * 32, b"x" * 32)
    assert facts["stage"] == "connect"
    assert facts["problem"]
    assert served["problem"]


def test_nothing_listens_on_all_interfaces():
    _, listener, packets = link.open_sockets("127.0.0.3")
    assert listener.getsockname()[0] == packets.getsockname()[0] == "127.0.0.3"
    listener.close()
    packets.close()


def test_nodes_without_good_connections_take_no_part_in_the_all_reduce():
    good = (1e9, 1e-4)
    found = {(0, 1): good, (1, 0): good, (0, 2): (0.0, 0.0), (2, 0): good, (1, 2): (1e6, 1e-4), (2, 1): good}
    assert coordinator.connected_ranks([0, 1, 2], found) == [0, 1]
    assert coordinator.connected_ranks([0, 1, 2], dict.fromkeys(found, good)) == [0, 1, 2]


def test_nodes_with_another_torch_take_no_part_in_the_all_reduce():
    assert coordinator.with_usual_version([0, 1, 2], {0: "2.13", 1: "2.12", 2: "2.13"}) == [0, 2]
    assert coordinator.with_usual_version([0, 1], {0: None, 1: None}) == []
