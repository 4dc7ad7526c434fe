//! The prompt on a terminal, which script(1) provides.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use obento_testkit::oracle::program;
use obento_testkit::{Oracle, require};

use crate::support::Disk;

/// A time limit that no reply exceeds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const TAB: &str = "\t";
const UP: &str = "\x1b[A";
const LEFT: &str = "\x1b[D";
/// Bracketed paste off and on: the end of a line, and the start of the next.
const LINE_DONE: &str = "\x1b[?2004l\r\n";
const NEXT_LINE: &str = "\x1b[?2004h";
const CTRL_A: &str = "\x01";
const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";

/// A command on a terminal of its own.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    shown: Receiver<Vec<u8>>,
    /// All output, and the part that was examined.
    screen: Vec<u8>,
    seen: usize,
}

impl Terminal {
    /// Starts the prompt for the image of `disk`, and waits for its first line.
    fn new(disk: &Disk, args: &str) -> Self {
        let mut command = program("script");
        // exec replaces the shell, which Ctrl-C would end, and the terminal with it.
        let line = format!("exec {} shell disk.img {args}", env!("CARGO_BIN_EXE_obento"));
        // Output is flushed immediately, and the exit code is that of the shell.
        command.args(["--quiet", "--flush", "--return", "--echo", "always", "--command", &line, "/dev/null"]);
        command
            .current_dir(disk.folder())
            .env("HOME", disk.folder())
            .env("TERM", "xterm")
            .env("NO_COLOR", "1");
        command.env_remove("XDG_STATE_HOME").env("SHELL", "/bin/sh");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (keys, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                let _ = sender.send(buffer[..count].to_vec());
            }
        });
        let mut terminal = Self { child, keys, shown, screen: Vec::new(), seen: 0 };
        terminal.expect("disk.img:/> ");
        terminal
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until `text` appears in the new output. Returns the output before it.
    #[track_caller]
    fn expect(&mut self, text: &str) -> String {
        loop {
            let rest = &self.screen[self.seen..];
            if let Some(at) = rest.windows(text.len()).position(|part| part == text.as_bytes()) {
                let before = String::from_utf8_lossy(&rest[..at]).into_owned();
                self.seen += at + text.len();
                return before;
            }
            match self.shown.recv_timeout(PATIENCE) {
                Ok(bytes) => self.screen.extend(bytes),
                Err(error) => {
                    let _ = self.child.kill();
                    panic!("{error}: no {text:?} in {:?}", String::from_utf8_lossy(rest));
                }
            }
        }
    }

    /// Types a line. Returns the output up to the next prompt, which begins with `prompt`.
    #[track_caller]
    fn line(&mut self, line: &str, prompt: &str) -> String {
        self.press(line);
        self.press("\r");
        // The end of the edited line: the output of the command follows, up to the preparation of the next
        // line.
        self.expect(LINE_DONE);
        let shown = self.expect(prompt);
        shown.split(NEXT_LINE).next().unwrap_or_default().to_owned()
    }

    /// Waits for the end. Returns the exit code.
    fn end(mut self) -> Option<i32> {
        drop(self.keys);
        while let Ok(bytes) = self.shown.recv_timeout(PATIENCE) {
            self.screen.extend(bytes);
        }
        self.child.wait().unwrap().code()
    }
}

fn disk() -> Option<Disk> {
    require(&[Oracle::Program("script")]).then(|| Disk::new("16M", &[])).flatten()
}

#[test]
fn a_line_is_edited_remembered_and_found_again_by_the_next_shell() {
    let Some(disk) = disk() else { return };
    let mut terminal = Terminal::new(&disk, "");
    // A missing letter in the middle, and at the start.
    terminal.press("kdir on");
    terminal.press(LEFT);
    terminal.press("X\x7f");
    terminal.press(CTRL_A);
    terminal.press("m");
    assert_eq!(terminal.line("", "disk.img:/> "), "");
    assert_eq!(terminal.line("ls", "disk.img:/> "), "lost+found  on\r\n");
    // The line before the last one again.
    terminal.press(UP);
    terminal.press(UP);
    assert!(terminal.line("e/two -p", "disk.img:/> ").is_empty());
    terminal.press("exit\r");
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(disk.read("ls disk.img:/"), "lost+found\non\none\n");
    let remembered = std::fs::read_to_string(disk.folder().join(".local/state/obento/history")).unwrap();
    assert!(remembered.ends_with("mkdir on\nls\nmkdir one/two -p\nexit\n"), "{remembered}");

    let mut terminal = Terminal::new(&disk, "");
    terminal.press(UP);
    terminal.expect("exit");
    terminal.press(UP);
    terminal.expect("mkdir one/two -p");
    terminal.press(CTRL_C);
    terminal.expect("disk.img:/> ");
    terminal.press(CTRL_D);
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn the_tabulator_completes_commands_options_and_names_whatever_is_in_them() {
    let Some(disk) = disk() else { return };
    let odd = "a\x1b[31m\u{202e}b";
    let made = disk.obento(&["mkdir", "-p", "disk.img:/d/two words/in", &format!("disk.img:/{odd}")]);
    assert!(made.status.success());
    disk.quietly(&["touch disk.img:/d/two.1 disk.img:/d/two.2"]);
    let mut terminal = Terminal::new(&disk, "");
    // One command begins with these letters; a space follows.
    terminal.press("trunc");
    terminal.press(TAB);
    terminal.expect("truncate ");
    terminal.press("--si");
    terminal.press(TAB);
    terminal.expect("--size ");
    terminal.press("7 d/two.");
    terminal.press(TAB);
    assert_eq!(terminal.line("1", "disk.img:/> "), "");
    // The common prefix of several names, then all of them.
    terminal.press("ls -d d/t");
    terminal.press(TAB);
    terminal.expect("d/two");
    terminal.press(TAB);
    terminal.press(TAB);
    terminal.expect("two.1");
    terminal.expect("two.2");
    terminal.expect(r"two\ words/");
    terminal.press(r"\ w");
    terminal.press(TAB);
    terminal.expect(r"d/two\ words/");
    terminal.press(TAB);
    assert_eq!(terminal.line("", "disk.img:/> "), "'disk.img:/d/two words/in/'\r\n");
    // Within a quote, too.
    terminal.press("cd 'd/two w");
    terminal.press(TAB);
    terminal.expect(r"d/two\ words/");
    assert_eq!(terminal.line("", "disk.img:/d/two words> "), "");
    // Escapes reach the terminal as text, and the command unchanged.
    terminal.press("rmdir /a");
    terminal.press(TAB);
    let edited = terminal.expect(r"a$'\033'\[31m$'\342'$'\200'$'\256'b/");
    assert!(!edited.contains("\x1b[31m") && !edited.contains('\u{202e}'), "{edited:?}");
    assert_eq!(terminal.line("", "disk.img:/d/two words> "), "");
    terminal.press(CTRL_D);
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(disk.read("ls disk.img:/"), "d\nlost+found\n");
    assert_eq!(disk.read("stat -c %s disk.img:/d/two.1"), "7\n");
}

#[test]
fn errors_end_no_shell_and_control_d_does_with_the_last_status() {
    let Some(disk) = disk() else { return };
    let mut terminal = Terminal::new(&disk, "");
    let said = terminal.line("rm none", "disk.img:/> ");
    assert_eq!(said, "obento: cannot remove 'disk.img:/none': no such file or directory\r\n");
    assert!(terminal.line("frobnicate", "disk.img:/> ").contains("unknown command 'frobnicate'"));
    assert!(terminal.line("ls 'a", "disk.img:/> ").contains("missing closing quote"));
    assert!(terminal.line("mkdir d; cd d", "disk.img:/d> ").is_empty());
    assert!(terminal.line("help rm", "disk.img:/d> ").contains("Usage: obento rm"));
    terminal.line("cat none", "disk.img:/d> ");
    terminal.press(CTRL_D);
    assert_eq!(terminal.end(), Some(1));
}

#[test]
fn control_c_discards_a_line_or_stops_a_command_and_the_image_stays_open_and_consistent() {
    let Some(disk) = disk() else { return };
    disk.quietly(&["mkdir disk.img:/d"]);
    let mut terminal = Terminal::new(&disk, "");
    terminal.press("rm -r d");
    terminal.press(CTRL_C);
    terminal.expect("disk.img:/> ");
    // A command that waits for the terminal.
    terminal.press("ls; write note\r");
    terminal.expect("d  lost+found\r\n");
    terminal.press("half a li");
    terminal.expect("half a li");
    terminal.press(CTRL_C);
    assert!(terminal.expect("disk.img:/> ").contains("obento: interrupted; completed changes stay\r\n"));
    // A command that ends only if it is stopped.
    terminal.press("truncate -s 3T big; echo; cp big host:/dev/null; mkdir never\r");
    terminal.expect("unknown command 'echo'");
    terminal.press(CTRL_C);
    assert!(terminal.expect("disk.img:/> ").contains("interrupted"));
    // A program of the host.
    terminal.press("touch f; exec f -- sh -c 'echo runs; read line' || mkdir failed\r");
    terminal.expect("runs\r\n");
    terminal.press(CTRL_C);
    assert!(terminal.expect("disk.img:/> ").contains("interrupted"));
    assert_eq!(terminal.line("ls -1", "disk.img:/> "), "big\r\nd\r\nf\r\nlost+found\r\n");
    terminal.press(CTRL_D);
    assert_eq!(terminal.end(), Some(0));
    // The image is neither locked nor in need of a replay: e2fsck reports nothing, either.
    disk.fsck();
    assert_eq!(
        disk.read("ls disk.img:/ disk.img:/d"),
        "disk.img:/:\nbig\nd\nf\nlost+found\n\ndisk.img:/d:\n"
    );
}

#[test]
fn control_c_stops_a_command_and_not_the_kernel_that_has_the_image_open() {
    if !require(&[Oracle::Program("linux.uml")]) {
        return;
    }
    let Some(disk) = disk() else { return };
    let mut terminal = Terminal::new(&disk, "--engine linux");
    assert_eq!(terminal.line("mkdir before", "disk.img:/> "), "");
    // While no line is edited, the key sends a signal to all foreground processes of the terminal.
    terminal.press("ls -1; write note; mkdir never\r");
    terminal.expect("before\r\nlost+found\r\n");
    terminal.press("half a li");
    terminal.expect("half a li");
    terminal.press(CTRL_C);
    assert!(terminal.expect("disk.img:/> ").contains("obento: interrupted; completed changes stay\r\n"));
    assert_eq!(terminal.line("mkdir after", "disk.img:/> "), "");
    assert_eq!(terminal.line("ls -1", "disk.img:/> "), "after\r\nbefore\r\nlost+found\r\n");
    terminal.press(CTRL_D);
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(disk.read("ls disk.img:/"), "after\nbefore\nlost+found\n");
}
