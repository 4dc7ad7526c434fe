//! The programs gzip, xz and zstd compress what is decoded here.

use std::io::Write;
use std::process::{Command, Stdio};

use obento_base::wire::to_usize;
use obento_block::MemDevice;
use obento_testkit::oracle::{Oracle, require};
use proptest::prelude::*;

use super::*;

const PROGRAMS: [(&str, Compression); 3] =
    [("gzip", Compression::Gzip), ("xz", Compression::Xz), ("zstd", Compression::Zstd)];

/// 3 MiB: text-like data, a hole, noise.
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
fn what_the_programs_compress_is_recognised_and_decoded_with_its_zeros_as_holes() {
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
fn members_streams_and_frames_follow_each_other_and_what_is_behind_them_is_ignored() {
    let (one, two) = (vec![1; 100_000], vec![2; 300_001]);
    for (program, compression) in PROGRAMS {
        let (Some(first), Some(second)) = (compress(program, &[], &one), compress(program, &[], &two)) else {
            continue;
        };
        let mut bytes = first;
        if compression == Compression::Zstd {
            // A skippable frame of five bytes.
            bytes.extend([0x5a, 0x2a, 0x4d, 0x18, 5, 0, 0, 0, 1, 2, 3, 4, 5]);
        }
        bytes.extend(second);
        // The .xz format allows zeros, four at a time; gzip and zstd say "trailing garbage ignored".
        bytes.extend([0; 512]);
        let decoded = decode(compression, bytes).unwrap();
        assert!(content(&decoded.device) == [one.clone(), two.clone()].concat(), "{program}");
        assert_eq!(decoded.incomplete, None, "{program}");
    }
}

#[test]
fn a_stream_cut_short_gives_what_could_be_decoded() {
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
fn damage_is_told_with_what_came_before_it() {
    let sample = sample();
    for (program, compression) in PROGRAMS {
        let Some(mut bytes) = compress(program, &[], &sample) else { continue };
        let middle = bytes.len() / 3;
        bytes[middle..middle + 64].fill(0xa5);
        let decoded = decode(compression, bytes.clone()).unwrap();
        assert!(matches!(decoded.incomplete, Some(Incomplete::Damaged { .. })), "{program}");
        let kind = decode(compression, bytes[..3].to_vec()).unwrap_err();
        assert!(matches!(kind, HostError::Damaged { .. }), "{program}: {kind}");
    }
}

#[test]
fn a_bomb_stops_at_the_limit_and_progress_is_told() {
    let Some(bytes) = compress("gzip", &[], &vec![0; 40 << 20]) else { return };
    let device = MemDevice::read_only(bytes);
    let mut seen = Vec::new();
    let mut progress = |progress| seen.push(progress);
    let options = Options { max_bytes: 10 << 20, progress: Some(&mut progress) };
    let error = decompress(&device, Path::new("bomb.gz"), Compression::Gzip, options).unwrap_err();
    assert_eq!(error, HostError::Limit { path: "bomb.gz".into(), limit: 10 << 20 });
    let last: Progress = *seen.last().unwrap();
    assert_eq!((last.decoded, last.total), (10 << 20, Some(device.len())));
}

#[test]
fn a_window_too_large_for_the_budget_is_refused() {
    let Some(bytes) = compress("zstd", &["--ultra", "--long=28"], &sample()) else { return };
    // The frame's header states a window of 256 MiB when the length is not known.
    let error = decode(Compression::Zstd, bytes).unwrap_err();
    assert!(error.to_string().contains("zstd"), "{error}");
}

#[test]
fn a_pipe_is_brought_into_a_file() {
    let device = spool(&mut &b"some bytes"[..], Path::new("-"), Options::default()).unwrap();
    assert_eq!(content(&device), b"some bytes");
    let options = Options { max_bytes: 3, progress: None };
    assert!(matches!(
        spool(&mut &b"some bytes"[..], Path::new("-"), options),
        Err(HostError::Limit { limit: 3, .. })
    ));
}

/// The same 40,000 bytes as each program compresses them.
fn small_streams() -> &'static [Option<Vec<u8>>; 3] {
    static STREAMS: std::sync::OnceLock<[Option<Vec<u8>>; 3]> = std::sync::OnceLock::new();
    STREAMS.get_or_init(|| {
        let numbers = (0..20_000_u32).flat_map(|n| n.wrapping_mul(n).to_string().into_bytes());
        let text: Vec<u8> = numbers.take(40_000).collect();
        PROGRAMS.map(|(program, _)| compress(program, &[], &text))
    })
}

proptest! {
    #[test]
    fn no_damage_makes_a_decoder_panic_or_hang(
        which in 0_usize..3,
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
        let options = Options { max_bytes: 1 << 24, progress: None };
        let _ = decompress(&device, Path::new("fuzz"), compression, options);
    }
}
