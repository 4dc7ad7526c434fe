//! Modes as chmod(1) takes them: octal, and symbolic ones such as `u+rw,g=u,o-x`.
//!
//! Invariant: a directory keeps its set-user-ID and set-group-ID bits unless the mode mentions them. Letters can
//! mention them, or an octal mode of at least five digits.
//! Source: the GNU coreutils manual, "File permissions"; gnulib's modechange.c for what it leaves open.

use obento::base::Mode;

const ALL: u16 = 0o7777;
const SET_IDS: u16 = 0o6000;

/// A change of permission bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModeChange(Vec<Step>);

/// An operator and its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    operator: u8,
    /// The bits of the named classes; 0 if none is named, which means all bits that the umask allows.
    affected: u16,
    value: Value,
    /// Bits that a directory keeps.
    mentioned: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    /// These bits; `X` adds execution for directories and for files that some class may execute.
    Bits { bits: u16, executable_if_any: bool },
    /// The bits of one class, copied to the others.
    CopyOf(u16),
}

impl ModeChange {
    /// Parses a mode; returns `None` if `text` is not a mode.
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let bits = octal(text)?;
            let mentioned = if text.len() < 5 { bits & 0o7000 | 0o777 } else { ALL };
            let value = Value::Bits { bits, executable_if_any: false };
            return Some(Self(vec![Step { operator: b'=', affected: ALL, value, mentioned }]));
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            parse_clause(clause.as_bytes(), &mut steps)?;
        }
        Some(Self(steps))
    }

    /// Returns `mode` after the change.
    pub fn apply(&self, mode: Mode, is_dir: bool, umask: u16) -> Mode {
        Mode::new(self.0.iter().fold(mode.bits(), |mode, step| step.apply(mode, is_dir, umask)))
    }
}

impl Step {
    fn apply(self, mode: u16, is_dir: bool, umask: u16) -> u16 {
        let kept = if is_dir { SET_IDS & !self.mentioned } else { 0 };
        let value = match self.value {
            Value::Bits { bits, executable_if_any } if executable_if_any && (is_dir || mode & 0o111 != 0) => {
                bits | 0o111
            }
            Value::Bits { bits, .. } => bits,
            Value::CopyOf(shift) => (mode >> shift & 7) * 0o111,
        };
        let reach = if self.affected == 0 { !umask } else { self.affected };
        let value = value & reach & !kept;
        match self.operator {
            b'+' => mode | value,
            b'-' => mode & !value,
            _ => mode & (if self.affected == 0 { 0 } else { !self.affected } | kept) | value,
        }
    }
}

/// Parses an octal number up to 7777, with any number of leading zeros.
fn octal(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|digit| (b'0'..b'8').contains(&digit));
    u16::from_str_radix(text, 8).ok().filter(|&bits| digits && bits <= ALL)
}

fn parse_clause(clause: &[u8], steps: &mut Vec<Step>) -> Option<()> {
    let split = clause.iter().position(|b| !b"ugoa".contains(b))?;
    let (who, mut rest) = clause.split_at(split);
    let affected = who.iter().fold(0, |bits, &who| bits | reach(who));
    while let Some((&operator, after)) = rest.split_first() {
        if !b"+-=".contains(&operator) {
            return None;
        }
        let end = after.iter().position(|b| b"+-=".contains(b)).unwrap_or(after.len());
        let (letters, next) = after.split_at(end);
        steps.push(parse_step(operator, affected, letters)?);
        rest = next;
    }
    Some(())
}

fn parse_step(operator: u8, affected: u16, letters: &[u8]) -> Option<Step> {
    if letters.first().is_some_and(u8::is_ascii_digit) {
        let bits = octal(str::from_utf8(letters).ok()?).filter(|_| affected == 0)?;
        let value = Value::Bits { bits, executable_if_any: false };
        return Some(Step { operator, affected: ALL, value, mentioned: ALL });
    }
    if let [class @ (b'u' | b'g' | b'o')] = letters {
        let shift = match class {
            b'u' => 6,
            b'g' => 3,
            _ => 0,
        };
        let value = Value::CopyOf(shift);
        return Some(Step { operator, affected, value, mentioned: affected & 0o777 });
    }
    let (mut bits, mut executable_if_any) = (0, false);
    for letter in letters {
        match letter {
            b'r' => bits |= 0o444,
            b'w' => bits |= 0o222,
            b'x' => bits |= 0o111,
            b's' => bits |= SET_IDS,
            b't' => bits |= 0o1000,
            b'X' => executable_if_any = true,
            _ => return None,
        }
    }
    let mentioned = if affected == 0 { bits } else { affected & bits };
    Some(Step { operator, affected, value: Value::Bits { bits, executable_if_any }, mentioned })
}

/// Returns the bits that `u`, `g`, `o` or `a` may change.
fn reach(who: u8) -> u16 {
    match who {
        b'u' => 0o4700,
        b'g' => 0o2070,
        b'o' => 0o1007,
        _ => ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(change: &str, mode: u16, is_dir: bool) -> u16 {
        ModeChange::parse(change).unwrap().apply(Mode::new(mode), is_dir, 0o022).bits()
    }

    #[test]
    fn octal_modes_keep_the_set_id_bits_of_directories_unless_they_have_five_digits() {
        assert_eq!(apply("644", 0o4755, false), 0o644);
        assert_eq!(apply("755", 0o2770, true), 0o2755);
        assert_eq!(apply("4755", 0o2770, true), 0o6755);
        assert_eq!(apply("00755", 0o2770, true), 0o755);
        assert_eq!(apply("0", 0o6777, true), 0o6000);
        assert_eq!(apply("=755", 0o2770, true), 0o755);
    }

    #[test]
    fn symbolic_modes_change_the_named_bits() {
        assert_eq!(apply("u=rw,g=r,o=", 0o777, false), 0o640);
        assert_eq!(apply("a+X", 0o644, false), 0o644);
        assert_eq!(apply("a+X", 0o744, false), 0o755);
        assert_eq!(apply("a+X", 0o644, true), 0o755);
        assert_eq!(apply("g=u,o=g", 0o700, false), 0o777);
        assert_eq!(apply("u+s,g+s,+t", 0o755, false), 0o7755);
        assert_eq!(apply("o+s", 0o755, false), 0o755);
        assert_eq!(apply("u=", 0o6755, true), 0o6055);
        assert_eq!(apply("u-s", 0o6755, true), 0o2755);
        assert_eq!(apply("u=rw+x-w", 0, false), 0o500);
        assert_eq!(apply("a-rwx", 0o1777, true), 0o1000);
    }

    #[test]
    fn a_mode_without_a_class_is_limited_by_the_umask() {
        assert_eq!(apply("+w", 0o444, false), 0o644);
        assert_eq!(apply("=rw", 0o777, false), 0o644);
        assert_eq!(apply("-w", 0o666, false), 0o466);
        assert_eq!(apply("=", 0o777, false), 0);
    }

    #[test]
    fn an_invalid_mode_is_rejected() {
        for bad in
            ["", ",", "u", "888", "77777", "z+x", "u+z", "u+x,", "u*x", "u+7", "+7x", "644,u+x", "u+ug"]
        {
            assert_eq!(ModeChange::parse(bad), None, "{bad:?}");
        }
    }
}
