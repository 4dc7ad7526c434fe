use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use obento_base::Ino;
use obento_driver::history::{Actor, OpenFile, OpenMode, Transferred};

use super::message::{FrameError, HEAD, encode};
use super::*;

fn session() -> SessionState {
    let node = |id, failure| NodeState {
        id,
        lookups: id + 3,
        is_plain: id % 2 == 0,
        is_regular: true,
        is_cached_for_long: id % 3 == 0,
        is_written: false,
        failure,
    };
    SessionState {
        writeback: true,
        setxattr_flags: true,
        stores_data: true,
        dirty_limit: 1 << 40,
        has_no_atime: true,
        has_gate: true,
        gate: GateState {
            is_gated: true,
            is_broken: false,
            announced: vec![(4, 5), (u64::MAX, u32::MAX)],
            refused: vec![(1, 2, libc::ENOSPC)],
            passed: vec![9, 8],
            sizes: vec![(7, 1 << 60)],
        },
        nodes: vec![node(2, None), node(u64::MAX - 9, Some(libc::EIO))],
        history: Some(history()),
    }
}

fn history() -> HistoryState {
    let actor = Actor { pid: u32::MAX, start: u64::MAX, uid: 1, gid: 2, ..Actor::default() };
    let actor = actor.with_comm(b"sixteen bytes ab");
    let file = OpenFile {
        ino: Ino(u64::MAX),
        actor,
        count: 3,
        mode: OpenMode { read: false, write: true },
        read: Transferred::default(),
        written: Transferred { bytes: 9, start: 4, end: u64::MAX },
    };
    HistoryState { files: vec![file], handles: vec![HandleState { number: 7, actor, ino: Ino(5) }], next: 8 }
}

/// Pseudo-random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

#[test]
fn a_session_and_messages_are_decoded_as_they_were_encoded() {
    assert_eq!(SessionState::decode(&session().encode()), Ok(session()));
    let hello = Hello { build: "0.1".into(), is_trial: true };
    assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    let arguments = vec![b"-o".to_vec(), Vec::new(), vec![0xff, 0]];
    let (fs_type, volume_id) = ("ext4".into(), "abc".into());
    let (build, read_only, requires_state) = (String::new(), false, true);
    let offer = Offer { build, arguments, read_only, fs_type, volume_id, requires_state };
    assert_eq!(Offer::decode(&offer.encode()), Ok(offer.clone()));
    let offer = Offer { requires_state: false, ..offer };
    assert_eq!(Offer::decode(&offer.encode()), Ok(offer));
    let (session, driver) = (session().encode(), vec![1, 0]);
    let state = State { session, driver, mounted: 5, upgrades: 6, requests: 7, has_unmount_socket: true };
    assert_eq!(State::decode(&state.encode()), Ok(state));
}

#[test]
fn unknown_fields_are_ignored_unless_they_are_critical() {
    let add = |need| [session().encode(), Fields::default().with(999, need, b"new").into_bytes()].concat();
    assert_eq!(SessionState::decode(&add(Need::Optional)), Ok(session()));
    assert_eq!(SessionState::decode(&add(Need::Critical)), Err(StateError::Unknown(999)));
}

#[test]
fn a_missing_a_repeated_and_an_invalid_field_are_refused() {
    let whole = session().encode();
    assert_eq!(SessionState::decode(&[]), Err(StateError::Missing(6)));
    assert_eq!(SessionState::decode(&[&whole[..], &whole[..]].concat()), Err(StateError::Invalid(6)));
    let mut state = session();
    state.nodes[0].lookups = 0;
    assert_eq!(SessionState::decode(&state.encode()), Err(StateError::Invalid(6)));
    let mut state = session();
    state.history.as_mut().unwrap().files[0].count = 0;
    assert_eq!(SessionState::decode(&state.encode()), Err(StateError::Invalid(1)));
}

#[test]
fn another_major_version_is_refused_and_another_minor_version_is_not() {
    let version = |major, minor| {
        let fields = Fields::default().with_number(1, major).with_number(2, minor);
        fields.with(3, Need::Optional, b"").with_number(16, 0).into_bytes()
    };
    assert!(Hello::decode(&version(1, 77)).is_ok());
    assert_eq!(Hello::decode(&version(2, 3)), Err(StateError::Version(2, 3, 1)));
}

#[test]
fn a_decoder_of_cut_or_changed_bytes_fails_or_returns_a_state_and_never_panics() {
    let whole = session().encode();
    for len in 0..whole.len() {
        assert!(SessionState::decode(&whole[..len]).is_err(), "{len}");
    }
    let mut random = Random(33);
    for _ in 0..100_000 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] = random.below(256) as u8;
        }
        bytes.truncate(random.below(bytes.len() * 4));
        if let Ok(state) = SessionState::decode(&bytes) {
            assert_eq!(SessionState::decode(&state.encode()), Ok(state));
        }
        let _ = (Hello::decode(&bytes), Offer::decode(&bytes), State::decode(&bytes));
    }
}

fn pair() -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Connection::of_stream(ours).unwrap(), theirs)
}

#[test]
fn a_message_arrives_whole_with_its_descriptors() {
    let (one, other) = pair();
    let other = Connection::of_stream(other).unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let long = vec![7; 3 << 20];
    std::thread::scope(|threads| {
        threads.spawn(|| one.send(Kind::State, &long, &[writer.as_fd(), reader.as_fd()]).unwrap());
        let message = other.expect(Kind::State).unwrap();
        assert!(message.fields == long);
        let [writer, reader] = &message.descriptors[..] else { panic!("{message:?}") };
        rustix::io::write(writer, b"x").unwrap();
        assert_eq!(rustix::io::read(reader, &mut [0; 8]).unwrap(), 1);
    });
    other.refuse("it is late");
    let refused = one.expect(Kind::Taken).unwrap_err();
    assert_eq!(refused, ConnectionError::Refused("it is late".into()));
    other.send(Kind::Go, &[], &[]).unwrap();
    assert_eq!(one.expect(Kind::Taken).unwrap_err(), ConnectionError::Unexpected(Kind::Go));
}

#[test]
fn a_cut_or_changed_message_and_silence_are_errors() {
    use std::io::Write;
    let whole = encode(Kind::Hello, b"some fields");
    for len in 0..whole.len() {
        let (one, mut other) = pair();
        other.write_all(&whole[..len]).unwrap();
        drop(other);
        assert_eq!(one.receive(None).unwrap_err(), ConnectionError::Ended);
    }
    for at in 0..whole.len() {
        let (one, mut other) = pair();
        let mut changed = whole.clone();
        changed[at] ^= 0x11;
        other.write_all(&changed).unwrap();
        drop(other);
        assert!(one.receive(None).is_err(), "{at}");
    }
    let (one, mut other) = pair();
    let mut changed = whole.clone();
    changed[HEAD] ^= 1;
    other.write_all(&changed).unwrap();
    assert_eq!(one.receive(None).unwrap_err(), ConnectionError::Frame(FrameError::Checksum));
    assert_eq!(one.receive(Some(std::time::Duration::from_millis(1))).unwrap_err(), ConnectionError::Silent);
}
