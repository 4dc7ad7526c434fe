//! `head`, `tail`, `wc`, `cmp` and `hexdump` beside GNU coreutils, diffutils and util-linux.

use std::fs;

use crate::support::{Dice, Twins, sparse};

const NAMES: [&str; 8] = ["@/0", "@/1", "@/2", "@/3", "@/4", "@/5", "@/6", "@/7"];

/// Files of text and of bytes: empty, without a last newline, with CR LF, long lines, many chunks.
fn twins(programs: &[&'static str]) -> Option<Twins> {
    let mut dice = Dice(7);
    let texts: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"\n".to_vec(),
        b"one line without its end".to_vec(),
        dice.text(400),
        dice.text(5_000),
        [dice.text(300_000), vec![b'x'; 600_000], dice.text(300_000)].concat(),
        (0..700_000_u32).map(|at| (at % 251).to_le_bytes()[0]).collect(),
        b"1\r\n2\r\n\r\n4\0\0\0\x00".to_vec(),
    ];
    let names: Vec<String> = (0..texts.len()).map(|at| at.to_string()).collect();
    let files: Vec<_> = names.iter().map(String::as_str).zip(texts.iter().map(Vec::as_slice)).collect();
    Twins::new(programs, &files)
}

#[test]
fn head_and_tail_print_what_gnu_head_and_tail_print() {
    let Some(twins) = twins(&["head", "tail"]) else { return };
    let mut dice = Dice(1);
    let amounts =
        [0, 1, 2, 3, 9, 10, 11, 100, 511, 4096, 30_000, 262_143, 262_144, 262_145, 900_000, 2_000_000];
    for round in 0..160 {
        let amount = amounts[usize::try_from(dice.below(amounts.len() as u64)).unwrap()];
        let (tool, sign) = [("head", ""), ("head", "-"), ("tail", ""), ("tail", "+")][round % 4];
        let option = ["-n", "-c"][usize::try_from(dice.below(2)).unwrap()];
        let amount = format!("{sign}{amount}");
        let mut args = vec![tool, option, &amount];
        args.extend(["-z", "-q", "-v"].into_iter().filter(|_| dice.below(4) == 0));
        args.extend(NAMES.iter().filter(|_| dice.below(3) > 0));
        args.push("@/3");
        twins.same(&args);
    }
    for args in [&["head", "@/3"][..], &["tail", "@/3"], &["head", "-5", "@/4"], &["tail", "-3", "@/4"]] {
        twins.same(args);
    }
}

#[test]
fn head_and_tail_read_standard_input() {
    let Some(twins) = twins(&["head", "tail"]) else { return };
    let input = Dice(3).text(600_000);
    for amount in ["0", "1", "10", "5000", "100000000"] {
        for (tool, sign) in [("head", ""), ("head", "-"), ("tail", ""), ("tail", "+")] {
            for option in ["-n", "-c"] {
                twins.same_with(&[tool, option, &format!("{sign}{amount}"), "-"], &input);
                twins.same_with(&[tool, option, &format!("{sign}{amount}"), "-"], b"a\nb\nc");
            }
        }
    }
}

#[test]
fn wc_counts_what_gnu_wc_counts() {
    let Some(twins) = twins(&["wc"]) else { return };
    for options in ["", "-l", "-w", "-c", "-m", "-lw", "-lwmc", "-lm", "-c -l", "-wc"] {
        for name in NAMES {
            let words: Vec<&str> = ["wc"]
                .into_iter()
                .chain(options.split(' ').filter(|word| !word.is_empty()))
                .chain([name])
                .collect();
            twins.same(&words);
        }
        let words = ["wc"].into_iter().chain(options.split(' ').filter(|word| !word.is_empty()));
        twins.same(&words.clone().chain(NAMES).collect::<Vec<_>>());
        twins.same_with(&words.chain(["-", "@/3"]).collect::<Vec<_>>(), "p q\n\u{e9}".as_bytes());
    }
    for name in ["@/0", "@/2", "@/3", "@/4"] {
        twins.same(&["wc", "-L", name]);
    }
}

#[test]
fn hexdump_prints_what_hexdump_c_prints() {
    let Some(twins) = twins(&["hexdump"]) else { return };
    let mut dice = Dice(5);
    for _ in 0..60 {
        let skip =
            [0, 1, 15, 16, 17, 400, 5_000, 700_000][usize::try_from(dice.below(8)).unwrap()].to_string();
        let length = [1, 5, 16, 33, 4096, 900_000][usize::try_from(dice.below(6)).unwrap()].to_string();
        let mut args = vec!["hexdump", "-C"];
        args.extend(["-v"].into_iter().filter(|_| dice.below(4) == 0));
        if dice.below(2) == 0 {
            args.extend(["-s", &skip]);
        }
        if dice.below(2) == 0 {
            args.extend(["-n", &length]);
        }
        args.extend(NAMES.iter().filter(|_| dice.below(4) == 0));
        args.push("@/4");
        twins.same(&args);
    }
}

#[test]
fn cmp_finds_what_gnu_cmp_finds() {
    let mut dice = Dice(9);
    let base = dice.text(300_000);
    let changed = |at: usize, byte: u8| {
        let mut bytes = base.clone();
        bytes[at] = byte;
        bytes
    };
    let files = [
        ("base", base.clone()),
        ("same", base.clone()),
        ("short", base[..99_999].to_vec()),
        ("early", changed(0, 200)),
        ("late", changed(299_000, 1)),
        ("middle", changed(150_000, b'\n')),
        ("empty", Vec::new()),
        ("line", base[..=base.iter().position(|&byte| byte == b'\n').unwrap()].to_vec()),
    ];
    let borrowed: Vec<_> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    let Some(twins) = Twins::new(&["cmp"], &borrowed) else { return };
    let options = ["", "-l", "-b", "-lb", "-s", "-i 3", "-i 1:2", "-n 7", "-n 150000", "-i 100 -n 10"];
    for (one, _) in &files {
        for (other, _) in &files {
            for options in options {
                let (one, other) = (format!("@/{one}"), format!("@/{other}"));
                let words = ["cmp"].into_iter().chain(options.split(' ').filter(|word| !word.is_empty()));
                let args: Vec<_> = words.chain([one.as_str(), &other]).collect();
                // Different skips make nearly all bytes differ.
                let (theirs, ours) = twins.same_with(&args, b"");
                let said = String::from_utf8_lossy(&ours.stderr).into_owned();
                let end = String::from_utf8_lossy(&theirs.stderr);
                let position = end.split(" after ").nth(1).unwrap_or_default();
                assert!(said.contains(position), "{args:?}: {said} {end}");
            }
        }
    }
    // A file of the host, and standard input.
    fs::write(twins.path("host"), &base).unwrap();
    for (name, code) in [("@/same", 0), ("@/late", 1), ("@/none", 2)] {
        assert_eq!(twins.ours(&["cmp", name, "host"], b"").status.code(), Some(code), "{name}");
        assert_eq!(twins.ours(&["cmp", "-", name], &base).status.code(), Some(code), "{name}");
    }
}

#[test]
fn holes_of_a_tebibyte_take_no_time_where_zeros_do_not_count() {
    const LEN: u64 = 1 << 40;
    let twins = Twins::with(&[], "24M", |tree| {
        sparse(&tree.join("one"), LEN, &[(0, b"first\n"), (LEN - 6, b"\nlast\n")]);
        sparse(&tree.join("two"), LEN, &[(0, b"first\n"), (LEN - 6, b"\nlast!")]);
    });
    let Some(twins) = twins else { return };
    let text = |args: &[&str]| String::from_utf8(twins.ours(args, b"").stdout).unwrap();
    assert_eq!(text(&["tail", "-n", "1", "@/one"]), "last\n");
    assert_eq!(text(&["tail", "-n", "+3", "@/one"]), "last\n");
    assert_eq!(text(&["head", "-n", "1", "@/one"]), "first\n");
    assert_eq!(text(&["wc", "@/one"]), format!("{:13} {:13} {LEN} disk.img:/one\n", 3, 2));
    assert_eq!(text(&["wc", "-m", "@/one"]), format!("{LEN} disk.img:/one\n"));
    let difference = format!("disk.img:/one disk.img:/two differ: byte {LEN}, line 3\n");
    assert_eq!(text(&["cmp", "@/one", "@/two"]), difference);
    let dump = text(&["hexdump", "@/one"]);
    assert_eq!(dump.lines().count(), 5, "{dump}");
    assert!(dump.ends_with("10000000000\n"), "{dump}");
}

#[test]
fn operands_that_are_not_files_are_reported() {
    let Some(twins) = Twins::new(&[], &[("d/f", b"x"), ("g", b"y")]) else { return };
    for tool in ["head", "tail", "wc", "hexdump", "sha256sum"] {
        let output = twins.ours(&[tool, "@/d", "@/g", "@/none"], b"");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{tool}: {said}");
        assert!(said.contains("is a directory") && said.contains("'disk.img:/none'"), "{tool}: {said}");
        let output = twins.ours(&[tool, "disk.img"], b"");
        assert!(
            String::from_utf8(output.stderr).unwrap().contains("if this is an image, add the path"),
            "{tool}"
        );
    }
}
