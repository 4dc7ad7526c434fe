//! Any bytes decode to a message or are rejected, and an encoded message decodes to itself.

use obento_linux_wire::{
    Answer, Entry, Envelope, Fill, Moment, NewFile, Piece, Place, Request, Run, Stat, Step, Times, Usage,
    decode, encode,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Variants and lengths are small numbers: more of these bytes are messages than of uniformly distributed ones.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..2000), vec(prop_oneof![0..16_u8, Just(0_u8), Just(0_u8)], 0..600)]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..300)
}

prop_compose! {
    fn stat()(ino: u64, mode: u16, nlink: u32, size: u64, seconds: i64, nanos: u32, btime: Option<(i64, u32)>) -> Stat {
        let mtime = Moment { seconds, nanos };
        let btime = btime.map(|(seconds, nanos)| Moment { seconds, nanos });
        Stat { ino, mode, nlink, size, mtime, btime, ..Stat::default() }
    }
}

prop_compose! {
    fn entry()(name in name(), next: u64, stat in prop::option::of(stat()), errno: u32) -> Entry {
        Entry { name, next, stat, errno }
    }
}

fn answer() -> impl Strategy<Value = Answer> {
    let fills = vec((any::<u32>(), any::<u32>()).prop_map(|(len, errno)| Fill { len, errno }), 0..50);
    let run = (any::<u64>(), any::<bool>(), any::<Option<u64>>());
    let runs = vec(run.prop_map(|(end, is_data, place)| Run { end, is_data, place }), 0..50);
    prop_oneof![
        any::<u32>().prop_map(|errno| Answer::Failed { errno }),
        Just(Answer::Done {}),
        (stat(), any::<u64>(), any::<u64>()).prop_map(|(root, blocks, file_size_max)| {
            Answer::Mounted { root, usage: Usage { blocks, ..Usage::default() }, file_size_max }
        }),
        stat().prop_map(|stat| Answer::Node { stat }),
        (vec(entry(), 0..20), any::<bool>())
            .prop_map(|(entries, is_end)| Answer::Entries { entries, is_end }),
        name().prop_map(|bytes| Answer::Bytes { bytes }),
        fills.prop_map(|fills| Answer::Filled { fills }),
        runs.clone().prop_map(|runs| Answer::Runs { runs }),
        (runs, vec(any::<u32>(), 0..50)).prop_map(|(runs, sums)| Answer::Proved { runs, sums }),
        any::<u64>().prop_map(|count| Answer::Count { count }),
        vec(any::<u32>(), 0..50).prop_map(|errnos| Answer::Made { errnos }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let place = (any::<u64>(), name()).prop_map(|(dir, name)| Place { dir, name });
    let piece = (any::<u64>(), prop::option::of(place), any::<u64>(), any::<u32>());
    let pieces = vec(piece.prop_map(|(ino, place, offset, len)| Piece { ino, place, offset, len }), 0..50);
    let file = (name(), any::<u16>(), any::<u32>(), any::<u32>(), any::<Option<(i64, u32)>>());
    let files = file.prop_map(|(name, mode, uid, len, mtime)| {
        let mtime = mtime.map(|(seconds, nanos)| Moment { seconds, nanos });
        NewFile { name, mode, uid, len, times: Times { mtime, atime: None }, ..NewFile::default() }
    });
    prop_oneof![
        (name(), name(), any::<bool>()).prop_map(|(kind, options, read_only)| Request::Mount {
            kind,
            options,
            read_only
        }),
        (any::<u64>(), any::<u64>()).prop_map(|(dir, from)| Request::List { dir, from }),
        (any::<u64>(), name()).prop_map(|(dir, name)| Request::Look { dir, name }),
        pieces.prop_map(|pieces| Request::Read { pieces }),
        (any::<u64>(), vec(files, 0..20)).prop_map(|(dir, files)| Request::MakeFiles { dir, files }),
        (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(ino, offset, end)| Request::Prove {
            ino,
            offset,
            end
        }),
        any::<u64>().prop_map(|len| Request::Grow { len }),
    ]
}

fn envelope() -> impl Strategy<Value = Envelope> {
    let step = (any::<u64>(), name(), any::<u64>()).prop_map(|(dir, name, ino)| Step { dir, name, ino });
    (vec(any::<u64>(), 0..20), vec(step, 0..10), prop::option::of(request()))
        .prop_map(|(forget, steps, request)| Envelope { forget, steps, request })
}

/// An encoded message decodes, and not with one byte more or less.
fn is_exact<T: obento_linux_wire::Wire + PartialEq + std::fmt::Debug>(
    value: &T,
) -> Result<(), TestCaseError> {
    let mut bytes = encode(value);
    let found = decode::<T>(&bytes);
    prop_assert_eq!(found.as_ref(), Some(value));
    bytes.push(0);
    prop_assert_eq!(decode::<T>(&bytes), None);
    bytes.truncate(bytes.len() - 2);
    prop_assert_eq!(decode::<T>(&bytes), None);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_decode_to_at_most_one_message(bytes in bytes()) {
        if let Some(answer) = decode::<Answer>(&bytes) {
            prop_assert_eq!(encode(&answer), &bytes[..]);
        }
        if let Some(envelope) = decode::<Envelope>(&bytes) {
            prop_assert_eq!(encode(&envelope), &bytes[..]);
        }
    }

    #[test]
    fn an_answer_round_trips(answer in answer()) {
        is_exact(&answer)?;
    }

    #[test]
    fn a_request_round_trips(envelope in envelope()) {
        is_exact(&envelope)?;
    }

    #[test]
    fn a_message_with_a_changed_byte_is_one_message_or_none(answer in answer(), at: prop::sample::Index, byte: u8) {
        let mut bytes = encode(&answer);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Some(found) = decode::<Answer>(&bytes) {
            prop_assert_eq!(encode(&found), bytes);
        }
    }
}
