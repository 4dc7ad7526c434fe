//! Questions to the user at the terminal, such as those of `-i`.

use std::io::{self, Write};

use obento::host::interrupt::{is_requested, read_line};

/// Asks `question` on standard error. Returns whether the answer starts with `y` or `Y`. A signal that was caught is a
/// refusal.
pub fn agrees(question: &str) -> bool {
    if is_requested() {
        return false;
    }
    let mut answer = Vec::new();
    // Without a user who can answer, the answer is no.
    let asked = write!(io::stderr(), "obento: {question} ").and_then(|()| io::stderr().flush());
    let answered = asked.and_then(|()| read_line(io::stdin().lock(), &mut answer));
    answered.is_ok() && matches!(answer.first(), Some(b'y' | b'Y'))
}
