//! The link over a fake transport that gives short reads and writes, interruptions, refusals and
//! failures in any order, and announces changes once, as epoll does.

mod fake;

use std::io::ErrorKind;

use ceased_core::rpc::send_queue::SendQueue;
use ceased_core::time::Instant;
use ceased_transports::{Flow, LAST_WORDS_BYTES_MAX, Link, Lost, Peer, Readiness, Sent, Socket};

use self::fake::{Rig, Rng};

/// Lines of all lengths around the scratch size, and the stream they make.
fn lines(rng: &mut Rng) -> (Vec<String>, Vec<u8>) {
    let lines: Vec<String> = (0..40)
        .map(|n| format!("{{\"n\":{n},\"x\":\"{}\"}}", "x".repeat(rng.below(150))))
        .collect();
    let stream = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
    (lines, stream)
}

#[test]
fn whatever_the_transport_does_no_frame_is_lost_and_none_is_left_behind_unannounced() {
    for seed in 0..2_000 {
        let mut rng = Rng::new(seed + 1);
        let mut rig = Rig::new(seed);
        rig.wire().interrupts = [0, 2, 5][rng.below(3)];
        rig.wire().piecewise = rng.below(2) == 0;
        let (lines, stream) = lines(&mut rng);
        let (mut rest, mut finished, mut turns) = (&stream[..], 0, 0);
        while finished == 0 {
            turns += 1;
            assert!(turns < 100_000, "seed {seed}: no end");
            if !rest.is_empty() && rng.below(2) == 0 {
                let (now, later) = rest.split_at(1 + rng.below(rest.len().min(300)));
                rig.wire().arrive(now);
                rest = later;
            }
            if rest.is_empty() && rng.below(4) == 0 {
                rig.wire().end();
            }
            rig.announce();
            let (before, budget) = (rig.link.bytes_received(), 1 + rng.below(200));
            let flow = rig.receive(budget).unwrap();
            assert!(rig.link.bytes_received() - before <= budget as u64, "seed {seed}");
            match flow {
                Flow::Drained => assert!(rig.wire().arrived.is_empty(), "seed {seed}: stranded"),
                Flow::More => {}
                Flow::Finished => finished += 1,
            }
        }
        assert_eq!(rig.frames, lines, "seed {seed}");
        assert_eq!(rig.link.bytes_received(), stream.len() as u64);
        assert_eq!(rig.link.frames_received(), lines.len() as u64);
        assert!(matches!(rig.receive(9), Ok(Flow::Drained)), "the end is told once");
    }
}

#[test]
fn whatever_the_transport_does_what_is_sent_arrives_whole_and_in_order() {
    for seed in 0..2_000 {
        let mut rng = Rng::new(seed + 1);
        let mut rig = Rig::new(seed);
        rig.wire().interrupts = [0, 2, 5][rng.below(3)];
        rig.wire().room = 0;
        let short_write_fills = rng.below(2) == 0;
        rig.wire().short_write_fills = short_write_fills;
        let (lines, stream) = lines(&mut rng);
        let mut queue = SendQueue::new();
        let mut waiting = lines.iter();
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(turns < 100_000, "seed {seed}: no end");
            let next = waiting.next();
            if let Some(line) = next {
                queue.line(line.as_bytes());
            }
            if rng.below(3) == 0 {
                rig.wire().make_room(rng.below(400));
            }
            rig.announce();
            match rig.link.send(&mut queue, rig.poll.registry()) {
                Sent::Everything => {
                    assert!(queue.is_empty() && !rig.link.is_blocked());
                    if next.is_none() {
                        break;
                    }
                }
                Sent::Blocked => {
                    assert!(!queue.is_empty() && rig.link.is_blocked());
                    let wire = rig.wire();
                    let is_noticed = short_write_fills && wire.news.writable;
                    assert!(wire.room == 0 || is_noticed, "seed {seed}: gave up too early");
                }
                Sent::Lost => panic!("seed {seed}: lost"),
            }
        }
        assert_eq!(rig.wire().sent, stream, "seed {seed}");
        assert_eq!(rig.link.bytes_sent(), stream.len() as u64);
    }
}

/// No write is tried that would take nothing, and a buffer with room is noticed.
#[test]
fn short_write_is_the_last_one_until_there_is_room() {
    let mut rig = Rig::new(0);
    (rig.wire().short_write_fills, rig.wire().room) = (true, 90);
    let mut queue = SendQueue::new();
    queue.line(&[b'x'; 99]);
    let mut turns = 0;
    loop {
        turns += 1;
        let sent = rig.link.send(&mut queue, rig.poll.registry());
        assert_eq!(rig.wire().writes, turns);
        if sent == Sent::Everything {
            break;
        }
        let mut wire = rig.wire();
        assert!(wire.awaits_room && wire.news.writable == (wire.room > 0));
        if wire.room == 0 {
            wire.make_room(50);
        }
        drop(wire);
        rig.announce();
    }
    assert_eq!(rig.wire().sent.len(), 100);
}

#[test]
fn message_costs_one_read_and_nothing_is_read_unannounced() {
    let mut rig = Rig::new(0);
    assert!(matches!(rig.receive(64), Ok(Flow::Drained)));
    assert_eq!(rig.reads(), 1, "the first time it cannot know");
    assert!(matches!(rig.receive(64), Ok(Flow::Drained)));
    assert_eq!(rig.reads(), 0);
    rig.wire().arrive(b"{\"id\":1}\n");
    rig.announce();
    assert!(matches!(rig.receive(64), Ok(Flow::Drained)));
    assert_eq!(rig.reads(), 1);
    assert_eq!(rig.frames, ["{\"id\":1}"]);
}

#[test]
fn end_is_found_behind_a_short_read() {
    let mut rig = Rig::new(0);
    rig.wire().arrive(b"{}\n{\"last\":1}");
    rig.wire().end();
    rig.announce();
    assert!(matches!(rig.receive(64), Ok(Flow::Finished)));
    assert_eq!(rig.frames, ["{}", "{\"last\":1}"], "also the line that lacks its end");
    assert!(rig.link.is_read_finished());
    let mut queue = SendQueue::new();
    queue.line(b"[]");
    assert_eq!(
        rig.link.send(&mut queue, rig.poll.registry()),
        Sent::Everything,
        "a half-closed peer still reads"
    );
}

#[test]
fn budget_leaves_the_rest_and_says_so() {
    let mut rig = Rig::new(0);
    rig.wire().arrive(b"{\"a\":1}\n{\"b\":2}\n");
    rig.announce();
    assert!(matches!(rig.receive(8), Ok(Flow::More)));
    assert_eq!(rig.frames.len(), 1);
    assert!(matches!(rig.receive(0), Ok(Flow::More)), "no budget is not the end");
    assert!(matches!(rig.receive(9), Ok(Flow::Drained)));
    assert_eq!(rig.frames.len(), 2);
}

#[test]
fn hang_up_is_told_after_what_the_peer_said_last() {
    let mut rig = Rig::new(0);
    rig.wire().arrive(b"{\"method\":\"tasks/cancel\"}\n{\"cut\":");
    rig.wire().end();
    rig.wire().news.peer_gone = true;
    rig.announce();
    let mut queue = SendQueue::new();
    queue.line(b"[]");
    assert_eq!(rig.link.send(&mut queue, rig.poll.registry()), Sent::Lost);
    assert!(queue.is_empty(), "what nobody can read is not kept");
    assert!(matches!(rig.receive(10), Ok(Flow::More)));
    assert!(matches!(rig.receive(1000), Err(Lost::Vanished(_))));
    assert_eq!(rig.frames, ["{\"method\":\"tasks/cancel\"}"], "a cut frame of a dead peer is none");
    assert!(matches!(rig.receive(1000), Err(Lost::Vanished(_))), "and for good");
    assert_eq!(rig.link.send(&mut queue, rig.poll.registry()), Sent::Lost);
}

#[test]
fn hang_up_after_a_half_close_is_a_loss() {
    let mut rig = Rig::new(0);
    rig.wire().end();
    rig.announce();
    assert!(matches!(rig.receive(10), Ok(Flow::Finished)));
    rig.wire().news.peer_gone = true;
    rig.announce();
    assert!(matches!(rig.receive(10), Err(Lost::Vanished(None))));
}

#[test]
fn failed_write_is_told_after_what_the_peer_said_last() {
    for (kind, vanished) in [
        (ErrorKind::BrokenPipe, true),
        (ErrorKind::ConnectionReset, true),
        (ErrorKind::TimedOut, true),
        (ErrorKind::StorageFull, false),
    ] {
        let mut rig = Rig::new(0);
        assert!(matches!(rig.receive(64), Ok(Flow::Drained)));
        rig.wire().arrive(b"{\"last\":1}\n");
        rig.wire().write_fails = Some(kind);
        let mut queue = SendQueue::new();
        queue.line(b"[]");
        assert_eq!(rig.link.send(&mut queue, rig.poll.registry()), Sent::Lost);
        let lost = rig.receive(64).unwrap_err();
        assert_eq!(rig.frames, ["{\"last\":1}"]);
        match lost {
            Lost::Vanished(Some(error)) => assert!(vanished && error.kind() == kind),
            Lost::Broken { doing: "write to", error } => {
                assert!(!vanished && error.kind() == kind);
            }
            Lost::Broken { .. } | Lost::Vanished(None) => panic!("{lost:?}"),
        }
    }
}

#[test]
fn write_that_takes_nothing_does_not_spin() {
    let mut rig = Rig::new(0);
    rig.wire().write_takes_nothing = true;
    let mut queue = SendQueue::new();
    queue.line(b"[]");
    assert_eq!(rig.link.send(&mut queue, rig.poll.registry()), Sent::Lost);
    assert!(matches!(rig.receive(64), Err(Lost::Broken { .. })));
}

#[test]
fn failed_read_is_a_loss_that_names_its_cause() {
    let mut rig = Rig::new(0);
    rig.wire().arrive(b"{}\n");
    rig.wire().read_fails = Some(ErrorKind::ConnectionReset);
    // As a reset shows itself: everything at once.
    rig.wire().news =
        Readiness { readable: true, writable: true, read_closed: true, peer_gone: true };
    rig.announce();
    let lost = rig.receive(64).unwrap_err();
    assert_eq!(rig.frames, ["{}"]);
    assert!(lost.to_string().contains("reset"), "{lost}");
    assert!(std::error::Error::source(&lost).is_some());
}

#[test]
fn peer_that_is_gone_cannot_talk_for_ever() {
    let mut rig = Rig::new(0);
    rig.wire().news.peer_gone = true;
    rig.announce();
    let mut heard = 0;
    let lost = loop {
        rig.wire().arrive(&[b'\n'; 1 << 16]);
        match rig.receive(1 << 16) {
            Ok(flow) => assert_eq!(flow, Flow::More),
            Err(lost) => break lost,
        }
        heard += 1 << 16;
        assert!(heard <= LAST_WORDS_BYTES_MAX, "still listening");
    };
    assert!(matches!(lost, Lost::Vanished(None)));
    assert!(heard + (1 << 16) >= LAST_WORDS_BYTES_MAX, "and not cut off early");
}

#[test]
fn after_our_own_end_a_hang_up_is_no_loss() {
    let mut rig = Rig::new(0);
    rig.link.finish().unwrap();
    assert!(rig.wire().finished);
    rig.wire().arrive(b"{}\n");
    rig.wire().end();
    rig.wire().news.peer_gone = true;
    rig.announce();
    assert!(matches!(rig.receive(64), Ok(Flow::Finished)));
    assert_eq!(rig.frames, ["{}"]);
}

#[test]
fn stall_is_measured_from_the_last_byte_that_moved() {
    let at = Instant::from_nanos;
    let mut rig = Rig::new(0);
    let mut queue = SendQueue::new();
    rig.wire().room = 0;
    assert_eq!(rig.link.stalled_since(at(1)), None);
    queue.line(&[b'x'; 100]);
    assert_eq!(rig.link.send(&mut queue, rig.poll.registry()), Sent::Blocked);
    assert_eq!(rig.link.stalled_since(at(2)), Some(at(2)));
    assert_eq!(rig.link.send(&mut queue, rig.poll.registry()), Sent::Blocked);
    assert_eq!(rig.link.stalled_since(at(9)), Some(at(2)));
    rig.wire().make_room(1);
    rig.announce();
    assert_eq!(rig.link.send(&mut queue, rig.poll.registry()), Sent::Blocked);
    assert_eq!(rig.link.stalled_since(at(10)), Some(at(10)), "one byte is progress");
    rig.wire().make_room(1000);
    rig.announce();
    assert_eq!(rig.link.send(&mut queue, rig.poll.registry()), Sent::Everything);
    assert_eq!(rig.link.stalled_since(at(11)), None);
}

#[test]
fn slow_frame_is_measured_from_its_beginning() {
    let at = Instant::from_nanos;
    let mut rig = Rig::new(0);
    let mut say = |bytes: &[u8], now| {
        rig.wire().arrive(bytes);
        rig.announce();
        assert!(matches!(rig.receive(64), Ok(Flow::Drained)));
        rig.link.mid_frame_since(at(now))
    };
    assert_eq!(say(b"{", 1), Some(at(1)));
    assert_eq!(say(b"\"a\":", 5), Some(at(1)), "a trickle does not help");
    assert_eq!(say(b"1}\n{", 6), Some(at(6)), "the next frame has its own time");
    assert_eq!(say(b"}\n", 7), None);
}

#[test]
fn idle_link_is_small() {
    assert!(size_of::<Link>() + size_of::<Socket>() <= 512, "{}", size_of::<Link>());
    let rig = Rig::new(0);
    assert_eq!(rig.link.peer(), &Peer::Stdio { uid: 7 });
    assert!(format!("{:?}", rig.link).contains("Open"));
}

#[test]
#[should_panic(expected = "reads through a buffer")]
fn empty_scratch_buffer_is_a_bug() {
    let mut rig = Rig::new(0);
    rig.scratch.clear();
    let _ = rig.receive(1);
}
