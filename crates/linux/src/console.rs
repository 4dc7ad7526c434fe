//! Extracts the reason of a failure from the output of the kernel.
//!
//! Invariant: the guest is not trusted. The examined and the quoted text are bounded, and quoted text has no
//! effect on a terminal.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use obento_base::is_printable;
use obento_linux_wire::MOUNTING;

/// The number of examined bytes.
const LOOKED_AT: u64 = 64 << 10;
/// The number of lines that explain why a volume is not mounted. The first line contains the reason, and the
/// others its consequences. Some types print an unrelated warning first.
const LINES: usize = 3;
/// The number of characters of `EXT4-fs warning `, the longest text before the name of the device.
const FS_TYPE: usize = 24;
/// The number of quoted characters.
const QUOTED: usize = 300;

/// Messages about a lack of memory. Source: Linux 6.1, mm/oom_kill.c.
const NO_MEMORY: [&str; 2] = ["Out of memory", "deadlocked on memory"];
/// The help for that case.
const MORE_MEMORY: &str = " (use a larger --engine-memory)";

/// Returns the end of the output.
pub fn text(console: &File) -> String {
    let len = rustix::fs::fstat(console).map_or(0, |stat| stat.st_size.cast_unsigned());
    let mut text = vec![0; usize::try_from(len.min(LOOKED_AT)).unwrap_or(0)];
    let read = console.read_at(&mut text, len.saturating_sub(LOOKED_AT)).unwrap_or(0);
    text.truncate(read);
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the reason why a volume is not mounted, from the output since the mount began.
pub fn of_mount(text: &str) -> Option<String> {
    let (_, since) = text.rsplit_once(MOUNTING)?;
    let is_reason = |line: &&str| !line.contains("Unmount and run");
    // A line that ends with a colon announces a dump of bytes.
    let is_text = |line: &&str| !line.ends_with(':');
    let lines: Vec<_> =
        lines(since).map(without_device).filter(is_reason).take_while(is_text).take(LINES).collect();
    (!lines.is_empty()).then(|| quoted(&lines.join("; ")))
}

/// Returns `line` without the name of the type and of the device in the guest: `XFS (vda): `.
fn without_device(line: &str) -> &str {
    match line.split_once("(vda): ") {
        Some((fs_type, rest)) if fs_type.len() <= FS_TYPE => rest,
        _ => line,
    }
}

/// Returns the reason why a kernel ended: the line of its panic. A kernel that was killed has none.
pub fn of_end(text: &str) -> Option<String> {
    let panic = quoted(lines(text).find(|line| line.contains("Kernel panic"))?);
    let advice = if NO_MEMORY.iter().any(|words| text.contains(words)) { MORE_MEMORY } else { "" };
    Some(panic + advice)
}

/// Returns the reason why a kernel did not start: its panic, or the end of the output.
pub fn of_start(text: &str) -> Option<String> {
    of_end(text).or_else(|| lines(text).next_back().map(quoted))
}

fn lines(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

fn quoted(line: &str) -> String {
    line.chars().take(QUOTED).map(|c| if is_printable(c) { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_kernel_panic_is_reported_without_its_stack() {
        let console = "Linux\nKernel panic - not syncing: no root\n [<6002>] function\n\n";
        let panic = Some("Kernel panic - not syncing: no root".to_owned());
        assert_eq!((of_end(console), of_start(console)), (panic.clone(), panic));
        assert_eq!(of_start("one\n last \n\n").as_deref(), Some("last"));
        assert_eq!((of_end("one\nlast\n"), of_start("")), (None, None));
    }

    #[test]
    fn a_kernel_without_memory_is_reported_with_the_option_for_more() {
        let console =
            "Out of memory: Killed process 1 (init)\nKernel panic - not syncing: Attempted to kill init!";
        let reported = "Kernel panic - not syncing: Attempted to kill init! (use a larger --engine-memory)";
        assert_eq!(of_end(console).as_deref(), Some(reported));
    }

    #[test]
    fn the_first_lines_of_a_mount_are_quoted_and_act_on_no_terminal() {
        let console = format!("before\n{MOUNTING}\na\n\nb\x1b[2J\u{202e}\nc\nd\n");
        assert_eq!(of_mount(&console).as_deref(), Some("a; b?[2J?; c"));
        let long = format!("{MOUNTING}\n{}", "x".repeat(5000));
        assert_eq!(of_mount(&long).map(|words| words.len()), Some(QUOTED));
        assert_eq!(of_mount("of the start\n"), None);
        let damage = "XFS (vda): CRC error, block 0x2\nXFS (vda): Unmount and run xfs_repair\nXFS (vda): First bytes:\n00000000: 70\n";
        assert_eq!(of_mount(&format!("{MOUNTING}\n{damage}")).as_deref(), Some("CRC error, block 0x2"));
    }

    #[test]
    fn the_end_of_an_endless_console_is_read() {
        let mut console = tempfile::tempfile().unwrap();
        console.write_all(&[b'-'; 100 << 10]).unwrap();
        console.write_all(b"last\n").unwrap();
        let text = text(&console);
        assert_eq!((text.len(), text.ends_with("-last\n")), (64 << 10, true));
    }
}
