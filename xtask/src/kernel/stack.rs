//! Finds code in a module that is unsafe on the stack of a kernel: large frames, and calls that may panic.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

/// Frames above this many bytes are counted.
const LARGE: u64 = 1 << 10;
/// How many frames of more than [`LARGE`] bytes, and calls that panic, the module may have. These limits increase only if
/// the module gets a feature.
const FRAMES_MAX: usize = 65;
const PANICS_MAX: usize = 768;

/// Prints the largest frames of `object` and counts the calls that panic. Fails above the limits.
pub fn run(shell: &Shell, object: &Path) -> Result<()> {
    let text = cmd!(shell, "objdump -dr --no-show-raw-insn {object}").quiet().read()?;
    let found = examine(&text);
    let mut frames: Vec<_> = found.frames.iter().collect();
    frames.sort_by_key(|&(name, &bytes)| (std::cmp::Reverse(bytes), name));
    for (name, bytes) in frames.iter().take(20) {
        println!("{bytes:>6} {}", short(name));
    }
    let large = frames.iter().filter(|&&(_, &bytes)| bytes > LARGE).count();
    println!("{} functions, {large} frames above {LARGE} bytes (at most {FRAMES_MAX})", frames.len());
    println!("{} calls that panic (at most {PANICS_MAX})", found.panics);
    ensure!(large <= FRAMES_MAX, "{large} frames have more than {LARGE} bytes");
    ensure!(found.panics <= PANICS_MAX, "{} calls panic", found.panics);
    Ok(())
}

#[derive(Default)]
struct Found {
    /// The frame size of each function: pushed registers, subtracted bytes, and the return address.
    frames: BTreeMap<String, u64>,
    panics: usize,
}

/// Reads the output of `objdump -dr`.
fn examine(text: &str) -> Found {
    let mut found = Found::default();
    let addresses: BTreeMap<u64, &str> = text.lines().filter_map(function).collect();
    let (mut name, mut count, mut probed) = (String::new(), 0, false);
    for line in text.lines() {
        if let Some((_, start)) = function(line) {
            (name, count, probed) = (start.to_owned(), 0, false);
            found.frames.insert(name.clone(), 8);
            continue;
        }
        if let Some((_, relocation)) = line.split_once("R_X86_64_") {
            found.panics += usize::from(target(relocation, &addresses).is_some_and(is_panic));
            continue;
        }
        let Some((_, instruction)) = line.split_once(":\t") else { continue };
        count += 1;
        let Some(frame) = found.frames.get_mut(&name) else { continue };
        if instruction.starts_with("push") && count < 20 {
            *frame += 8;
        } else if let Some(bytes) = operand(instruction, "sub", ",%rsp") {
            // A large frame is touched page by page: the loop subtracts a page at a time.
            if !(probed && bytes == 0x1000) {
                *frame += bytes;
            }
        } else if let Some(bytes) = probe(instruction) {
            *frame += bytes;
            probed = true;
        }
    }
    found
}

/// The address and the name of a function in `0000000000012040 <name>:`.
fn function(line: &str) -> Option<(u64, &str)> {
    let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
    Some((u64::from_str_radix(address, 16).ok()?, name))
}

/// The function to which a relocation refers: `64\t.text+0x12040`, or `PLT32\tname-0x4`.
fn target<'t>(relocation: &'t str, addresses: &BTreeMap<u64, &'t str>) -> Option<&'t str> {
    let (kind, symbol) = relocation.split_once(char::is_whitespace)?;
    let symbol = symbol.trim();
    let Some(offset) = symbol.strip_prefix(".text+0x") else { return Some(symbol) };
    let offset = u64::from_str_radix(offset, 16).ok()?;
    // Relative addresses count from the end of their four bytes.
    addresses.get(&if kind == "64" { offset } else { offset + 4 }).copied()
}

/// Whether a function panics.
fn is_panic(name: &str) -> bool {
    ["9panicking", "handle_alloc_error", "unwrap_failed", "expect_failed", "handle_error"]
        .iter()
        .any(|word| name.contains(word))
}

/// The number in `sub $0x58,%rsp`.
fn operand(instruction: &str, name: &str, target: &str) -> Option<u64> {
    let rest = instruction.strip_prefix(name)?.trim_start().strip_prefix("$0x")?;
    let number = rest.split(',').next()?;
    if !instruction.trim_end().ends_with(target) || number.len() > 8 {
        return None;
    }
    u64::from_str_radix(number, 16).ok()
}

/// The number in `lea -0x2000(%rsp),%r11`, which begins the loop that touches a large frame.
fn probe(instruction: &str) -> Option<u64> {
    let rest = instruction.strip_prefix("lea")?.trim_start().strip_prefix("-0x")?;
    let (number, rest) = rest.split_once('(')?;
    if rest.trim_end() == "%rsp),%r11" { u64::from_str_radix(number, 16).ok() } else { None }
}

/// A mangled name, cut to a line.
fn short(name: &str) -> &str {
    name.get(..100).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_the_bytes_that_a_function_pushes_and_subtracts() {
        let text = "0000000000000000 <small>:\n   0:\tpush   %rbx\n   1:\tsub    $0x58,%rsp\n   5:\tcall   a\n\
                    \t\t\t6: R_X86_64_PLT32\t_RNvNtCs_4core9panicking5panic-0x4\n\
                    \t\t\t7: R_X86_64_64\t.text+0x30\n\t\t\t8: R_X86_64_PLT32\t.text+0x2c\n\
                    0000000000000010 <large>:\n  10:\tlea    -0x2000(%rsp),%r11\n  18:\tsub    $0x1000,%rsp\n\
                    1f:\tmovq   $0x0,(%rsp)\n  27:\tsub    $0x40,%rsp\n\
                    0000000000000030 <_RNvNtCs_4core9panicking9panic_fmt>:\n  30:\tret\n";
        let found = examine(text);
        assert_eq!(found.frames["small"], 8 + 8 + 0x58);
        assert_eq!(found.frames["large"], 8 + 0x2000 + 0x40);
        assert_eq!(found.panics, 3);
    }
}
