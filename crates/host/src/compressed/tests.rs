//! Decodes the output of the programs bzip2, gzip, lzma, xz and zstd.

use std::io::Write;
use std::process::{Command, Stdio};

use obento_base::wire::{to_u64, to_usize};
use obento_block::MemDevice;
use obento_testkit::oracle::{Oracle, require};
use proptest::prelude::*;

use super::*;

const PROGRAMS: [(&str, Compression); 5] = [
    ("bzip2", Compression::Bzip2),
    ("gzip", Compression::Gzip),
    ("lzma", Compression::Lzma),
    ("xz", Compression::Xz),
    ("zstd", Compression::Zstd),
];

/// Returns 3 MiB: text-like data, a hole, noise.
fn sample() -> Vec<u8> {
    let mut state = 1_u32;
    let mut noise = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    let mut bytes: Vec<u8> = (0..1 << 20).map(|_| b'a' + noise() % 4).collect();
    bytes.resize(2 << 20, 0);
    bytes.extend((0..1 << 20).map(|_| noise()));
    bytes
}

fn compress(program: &'static str, args: &[&str], bytes: &[u8]) -> Option<Vec<u8>> {
    if !require(&[Oracle::Program(program)]) {
        return None;
    }
    let mut child = Command::new(program)
        .args(["-c", "-q"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(bytes).unwrap());
        child.wait_with_output().unwrap()
    });
    Some(output.stdout)
}

fn decode(compression: Compression, bytes: Vec<u8>) -> Result<Decompressed, HostError> {
    decompress(&MemDevice::read_only(bytes), Path::new("test.img"), compression, Options::default())
}

fn content(device: &FileDevice) -> Vec<u8> {
    let mut bytes = vec![0; to_usize(device.len())];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn output_of_the_compression_programs_is_recognised_and_decoded_with_zeros_as_holes() {
    let sample = sample();
    for (program, compression) in PROGRAMS {
        let Some(bytes) = compress(program, &[], &sample) else { continue };
        assert_eq!(Compression::detect(&bytes[..Compression::MAGIC_LEN]), Some(compression));
        let decoded = decode(compression, bytes).unwrap();
        assert_eq!(decoded.incomplete, None, "{program}");
        assert!(content(&decoded.device) == sample && decoded.device.is_read_only(), "{program}");
        let stat = rustix::fs::fstat(&**decoded.device.host_file()).unwrap();
        assert!(stat.st_blocks * 512 < 2_200_000, "{program}: {} sectors", stat.st_blocks);
        assert_eq!(stat.st_nlink, 0);
    }
}

#[test]
fn the_start_of_a_stream_is_decoded_alone_and_up_to_its_end_or_damage() {
    let sample = sample();
    for (program, compression) in PROGRAMS {
        let (Some(long), Some(short)) = (compress(program, &[], &sample), compress(program, &[], b"short"))
        else {
            continue;
        };
        let mut start = [0; 512];
        let limits = UnpackLimits::default();
        let mut decode = |bytes: &[u8]| {
            let device = MemDevice::read_only(bytes.to_vec());
            let len = decode_start(&device, compression, &limits, &mut start);
            start[..len].to_vec()
        };
        assert!(decode(&long) == sample[..512], "{program}");
        assert_eq!(decode(&short), b"short", "{program}");
        assert_eq!(decode(&long[..4]), b"", "{program}");
    }
}

#[test]
fn members_streams_and_frames_follow_each_other_and_zeros_after_them_are_ignored() {
    let (one, two) = (vec![1; 100_000], vec![2; 300_001]);
    // An lzma file has one stream only.
    for (program, compression) in PROGRAMS.into_iter().filter(|(program, _)| *program != "lzma") {
        let (Some(first), Some(second)) = (compress(program, &[], &one), compress(program, &[], &two)) else {
            continue;
        };
        let mut bytes = first;
        if compression == Compression::Zstd {
            // A skippable frame of five bytes.
            bytes.extend([0x5a, 0x2a, 0x4d, 0x18, 5, 0, 0, 0, 1, 2, 3, 4, 5]);
        }
        bytes.extend(second);
        // The .xz format allows zeros, four at a time.
        bytes.extend([0; 512]);
        let decoded = decode(compression, bytes).unwrap();
        assert!(content(&decoded.device) == [one.clone(), two.clone()].concat(), "{program}");
        assert_eq!(decoded.incomplete, None, "{program}");
    }
}

/// Contents, their frames, and the number of frames before one that is too long for a thread of its own.
type Frames = (Vec<Vec<u8>>, Vec<Vec<u8>>, usize);

fn frames() -> Option<Frames> {
    let sample = sample();
    let mut contents: Vec<Vec<u8>> = [5, 300_001, 0, 1 << 20, 4096, 700_000, 3 << 20]
        .map(|len: usize| sample.iter().rev().cycle().take(len).copied().collect())
        .into();
    let short = contents.len();
    contents.push(vec![0; 17 << 20]);
    contents.push(sample[..12_345].to_vec());
    let frames: Option<Vec<_>> = contents.iter().map(|bytes| compress("zstd", &[], bytes)).collect();
    frames.map(|frames| (contents, frames, short))
}

#[test]
fn short_frames_are_decoded_by_several_threads_and_the_rest_by_one() {
    let Some((contents, frames, short)) = frames() else { return };
    // A skippable frame of two bytes.
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 2].to_vec();
    let parts = |count: usize| frames[..count].iter().flat_map(|frame| [skippable.clone(), frame.clone()]);
    let before: Vec<u8> = parts(short).flatten().collect();
    let all: Vec<u8> = parts(frames.len()).flatten().chain([0; 100]).collect();
    let mut taken = Vec::new();
    let decoded =
        frames::run(&MemDevice::read_only(all.clone()), UnpackLimits::default().memory, &mut |chunk| {
            taken.extend_from_slice(chunk.bytes());
            Ok(())
        });
    let decoded = decoded.unwrap();
    if std::thread::available_parallelism().is_ok_and(|count| count.get() > 1) {
        assert!(decoded.failure.is_none() && taken == contents[..short].concat());
        let ends = [to_u64(before.len()), to_u64(before.len() + skippable.len())];
        assert!(ends.contains(&decoded.end), "{ends:?}, {}", decoded.end);
    }
    let decoded = decode(Compression::Zstd, all).unwrap();
    assert_eq!(decoded.incomplete, None);
    assert!(content(&decoded.device) == contents.concat());
    // The 17 MiB of zeros are a hole.
    let stat = rustix::fs::fstat(&**decoded.device.host_file()).unwrap();
    assert!(stat.st_blocks * 512 < 5_400_000, "{} sectors", stat.st_blocks);
}

#[test]
fn a_damaged_frame_ends_the_decoding_after_those_before_it() {
    let Some((contents, frames, short)) = frames() else { return };
    let good = contents[..short - 1].concat();
    let before: usize = frames[..short - 1].iter().map(Vec::len).sum();
    let mut bytes = frames.concat();
    bytes[before + frames[short - 1].len() / 2..][..64].fill(0xa5);
    for bytes in [bytes.clone(), [&bytes, &frames.concat()[..]].concat()] {
        let decoded = decode(Compression::Zstd, bytes).unwrap();
        let found = content(&decoded.device);
        assert!(matches!(decoded.incomplete, Some(Incomplete::Damaged { .. })), "{:?}", decoded.incomplete);
        // Damage of stored bytes shows only in the checksum.
        assert!(found.len() <= good.len() + (3 << 20) && found.starts_with(&good));
    }
    let cut = &frames.concat()[..before + 1000];
    let decoded = decode(Compression::Zstd, cut.to_vec()).unwrap();
    assert!(matches!(decoded.incomplete, Some(Incomplete::Truncated { .. })), "{:?}", decoded.incomplete);
    assert!(content(&decoded.device).starts_with(&good));
    // A limit applies to all frames together.
    let limits = UnpackLimits { bytes: Some(2 << 20), ..UnpackLimits::default() };
    let options = Options { limits, ..Options::default() };
    let device = MemDevice::read_only(frames.concat());
    let refused = decompress(&device, Path::new("test.img"), Compression::Zstd, options).unwrap_err();
    assert!(matches!(refused, HostError::Unpack { .. }), "{refused}");
}

#[test]
fn a_damaged_start_of_a_second_member_is_reported() {
    let (one, two) = (vec![1; 100_000], vec![2; 300_001]);
    for (program, compression) in PROGRAMS.into_iter().filter(|(program, _)| *program != "lzma") {
        let (Some(first), Some(second)) = (compress(program, &[], &one), compress(program, &[], &two)) else {
            continue;
        };
        for padding in [0, 4] {
            let mut bytes = [&first[..], &vec![0; padding], &second].concat();
            bytes[first.len() + padding + 1] ^= 1;
            let decoded = decode(compression, bytes).unwrap();
            assert!(content(&decoded.device) == one, "{program}");
            let reported = decoded.incomplete;
            assert!(matches!(reported, Some(Incomplete::Damaged { .. })), "{program}: {reported:?}");
        }
    }
}

#[test]
fn a_member_is_found_wherever_the_bytes_read_at_once_end() {
    let (one, two) = (vec![1; 100_000], vec![2; 300_001]);
    for (program, compression) in PROGRAMS.into_iter().filter(|(program, _)| *program != "lzma") {
        let (Some(first), Some(second)) = (compress(program, &[], &one), compress(program, &[], &two)) else {
            continue;
        };
        let bytes = [&first[..], &second].concat();
        for capacity in (first.len()..first.len() + 7).chain([1]) {
            let input = std::io::BufReader::with_capacity(capacity, &bytes[..]);
            let mut decoder = decode::Decoder::new(
                compression,
                input,
                decode::FramePlace::First,
                UnpackLimits::default().memory,
            );
            let mut decoded = Vec::new();
            let read = decoder.read_to_end(&mut decoded);
            assert!(read.is_ok(), "{program} with {capacity} of {} bytes: {read:?}", first.len());
            assert!(decoded == [one.clone(), two.clone()].concat(), "{program} with {capacity} bytes");
        }
    }
}

#[test]
fn a_few_zeros_after_a_stream_are_padding() {
    let sample = vec![1; 100_000];
    for (program, compression) in PROGRAMS.into_iter().filter(|(program, _)| *program != "lzma") {
        let Some(packed) = compress(program, &[], &sample) else { continue };
        for padding in 1..6 {
            let decoded = decode(compression, [&packed[..], &vec![0; padding]].concat()).unwrap();
            assert_eq!(decoded.incomplete, None, "{program}, {padding} bytes");
            assert!(content(&decoded.device) == sample, "{program}");
        }
    }
}

#[test]
fn unknown_data_after_a_stream_is_no_damage() {
    let sample = vec![1; 100_000];
    for (program, compression) in PROGRAMS.into_iter().filter(|(program, _)| *program != "lzma") {
        let Some(packed) = compress(program, &[], &sample) else { continue };
        for (padding, trailer) in [(0, &b"{ }FWx0"[..]), (3, b"{ }FWx0"), (512, b"{"), (0, b"{")] {
            let bytes = [&packed[..], &vec![0; padding], trailer].concat();
            let mut stream =
                Stream::new(std::io::Cursor::new(bytes.clone()), UnpackLimits::default()).unwrap();
            let mut streamed = Vec::new();
            stream.read_to_end(&mut streamed).unwrap();
            let decoded = decode(compression, bytes).unwrap();
            assert_eq!(decoded.incomplete, Some(Incomplete::Trailing), "{program}, {padding} zeros");
            assert!(content(&decoded.device) == sample && streamed == sample, "{program}");
        }
    }
}

#[test]
fn a_truncated_stream_yields_its_decodable_bytes() {
    let sample = sample();
    for (program, compression) in PROGRAMS {
        let Some(mut bytes) = compress(program, &[], &sample) else { continue };
        bytes.truncate(bytes.len() - 200_000);
        let decoded = decode(compression, bytes).unwrap();
        let len = decoded.device.len();
        assert_eq!(decoded.incomplete, Some(Incomplete::Truncated { decoded: len }), "{program}");
        assert!(len > 2_400_000, "{program}: {len} bytes");
        assert!(content(&decoded.device) == sample[..to_usize(len)], "{program}");
    }
}

#[test]
fn damage_is_reported_after_the_preceding_bytes() {
    let sample = sample();
    for (program, compression) in PROGRAMS {
        let Some(mut bytes) = compress(program, &[], &sample) else { continue };
        let middle = bytes.len() / 3;
        bytes[middle..middle + 64].fill(0xa5);
        let decoded = decode(compression, bytes.clone()).unwrap();
        // Without checksums and end marks, lzma may detect only that the data ends too early.
        let is_reported = decoded.incomplete.is_some() && compression == Compression::Lzma
            || matches!(decoded.incomplete, Some(Incomplete::Damaged { .. }));
        assert!(is_reported, "{program}: {:?}", decoded.incomplete);
        let kind = decode(compression, bytes[..3].to_vec()).unwrap_err();
        assert!(matches!(kind, HostError::Damaged { .. }), "{program}: {kind}");
    }
}

#[test]
fn a_bomb_stops_at_the_limit_and_progress_is_reported() {
    let Some(bytes) = compress("gzip", &[], &vec![0; 40 << 20]) else { return };
    let device = MemDevice::read_only(bytes);
    let mut seen = Vec::new();
    let mut progress = |progress| seen.push(progress);
    let options = Options { limits: at_most(10 << 20), progress: Some(&mut progress), ..Options::default() };
    let error = decompress(&device, Path::new("bomb.gz"), Compression::Gzip, options).unwrap_err();
    assert_eq!(error.to_string(), "cannot decompress 'bomb.gz': its contents exceed the limit of 10 MiB");
    let last: Progress = *seen.last().unwrap();
    assert_eq!((last.decoded, last.total), (10 << 20, Some(device.len())));
}

fn at_most(bytes: u64) -> UnpackLimits {
    UnpackLimits { bytes: Some(bytes), ..UnpackLimits::default() }
}

/// Returns a frame of zstd with a window of 2^`exponent` bytes, and `abc`. Source: RFC 8878, sections 3.1.1.1
/// and 3.1.1.2.
fn frame(exponent: u8) -> Vec<u8> {
    let header = [0x28, 0xb5, 0x2f, 0xfd, 0, (exponent - 10) << 3];
    [&header[..], &[3 << 3 | 1, 0, 0], b"abc"].concat()
}

fn unpack(error: UnpackError) -> HostError {
    HostError::Unpack { operation: "decompress", path: "test.img".into(), error }
}

fn with_memory(compression: Compression, bytes: Vec<u8>, memory: u64) -> Result<Vec<u8>, HostError> {
    let limits = UnpackLimits { memory, ..UnpackLimits::default() };
    let options = Options { limits, ..Options::default() };
    let decoded = decompress(&MemDevice::read_only(bytes), Path::new("test.img"), compression, options)?;
    assert_eq!(decoded.incomplete, None);
    Ok(content(&decoded.device))
}

#[test]
fn a_decoder_takes_the_allowed_memory_and_reports_how_much_it_lacks() {
    let memory = UnpackLimits::default().memory;
    for exponent in [10, 27, 28] {
        assert_eq!(with_memory(Compression::Zstd, frame(exponent), memory).unwrap(), b"abc", "{exponent}");
    }
    for exponent in [29, 31] {
        let error = with_memory(Compression::Zstd, frame(exponent), memory).unwrap_err();
        let error_of = UnpackError::Memory { needed: Some(1 << exponent), limit: memory };
        assert_eq!(error, unpack(error_of));
        assert_eq!(with_memory(Compression::Zstd, frame(exponent), 1 << 31).unwrap(), b"abc", "{exponent}");
    }
    // The bytes that were unpacked before the error do not form an image.
    let second = [frame(20), frame(29)].concat();
    assert!(matches!(with_memory(Compression::Zstd, second, memory), Err(HostError::Unpack { .. })));
    for (program, compression) in [("xz", Compression::Xz), ("lzma", Compression::Lzma)] {
        let Some(bytes) = compress(program, &["-6"], b"abc") else { continue };
        assert_eq!(with_memory(compression, bytes.clone(), 9 << 20).unwrap(), b"abc");
        let error = with_memory(compression, bytes, 8 << 20).unwrap_err();
        let error_of = UnpackError::Memory { needed: None, limit: 8 << 20 };
        assert_eq!(error, unpack(error_of), "{program}");
    }
}

#[test]
fn the_largest_usual_dictionary_of_xz_is_allowed_by_default() {
    // A dictionary of 192 MiB (property 31) in the header of the block, which is followed by its checksum.
    let Some(mut bytes) = compress("xz", &["-0", "--check=none"], b"abc") else { return };
    let header = 12..12 + (usize::from(bytes[12]) + 1) * 4;
    assert_eq!(bytes[14..16], [0x21, 1], "LZMA2, with one property");
    bytes[16] = 31;
    let (header, end) = (header.start..header.end - 4, header.end);
    let sum = obento_base::crc::crc32(&bytes[header]);
    bytes[end - 4..end].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(with_memory(Compression::Xz, bytes, UnpackLimits::default().memory).unwrap(), b"abc");
}

#[test]
fn a_pipe_is_brought_into_a_file() {
    let device = spool(&mut &b"some bytes"[..], Path::new("-"), None).unwrap();
    assert_eq!(content(&device), b"some bytes");
}

#[test]
fn a_stream_hands_out_no_more_than_its_limit_and_ends_in_its_error() {
    let Some(bytes) = compress("gzip", &[], &vec![7; 3 << 20]) else { return };
    let read = |limits| {
        let (mut stream, mut out) =
            (Stream::new(std::io::Cursor::new(bytes.clone()), limits).unwrap(), Vec::new());
        let read = stream.read_to_end(&mut out);
        (out.len(), read.err().and_then(|error| UnpackError::of(&error)))
    };
    assert_eq!(read(UnpackLimits::default()), (3 << 20, None));
    assert_eq!(read(at_most(1 << 20)), (1 << 20, Some(UnpackError::Bytes { limit: 1 << 20 })));
    // The limits do not apply to a stream without compression.
    let mut plain = Stream::new(&[7; 1000][..], at_most(1)).unwrap();
    assert_eq!(plain.read_to_end(&mut Vec::new()).unwrap(), 1000);
}

/// Returns the same 40,000 bytes, compressed by each program.
fn small_streams() -> &'static [Option<Vec<u8>>; 5] {
    static STREAMS: std::sync::OnceLock<[Option<Vec<u8>>; 5]> = std::sync::OnceLock::new();
    STREAMS.get_or_init(|| {
        let numbers = (0..20_000_u32).flat_map(|n| n.wrapping_mul(n).to_string().into_bytes());
        let text: Vec<u8> = numbers.take(40_000).collect();
        PROGRAMS.map(|(program, _)| compress(program, &[], &text))
    })
}

proptest! {
    #[test]
    fn no_damage_makes_a_decoder_panic_or_hang(
        which in 0_usize..5,
        damage in prop::collection::vec((0_usize..4000, any::<u8>()), 1..8),
        cut in 0_usize..5000,
    ) {
        let (_, compression) = PROGRAMS[which];
        let Some(mut bytes) = small_streams()[which].clone() else { return Ok(()) };
        for (at, byte) in damage {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        let device = MemDevice::read_only(bytes);
        let options = Options { limits: at_most(1 << 24), ..Options::default() };
        let _ = decompress(&device, Path::new("fuzz"), compression, options);
    }
}
