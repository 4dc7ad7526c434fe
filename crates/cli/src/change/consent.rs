//! Asking the person at the terminal: `-i` and its like.

use std::io::{self, BufRead, Write};

/// Asks `question` on standard error; an answer that starts with `y` or `Y` agrees.
pub fn agrees(question: &str) -> bool {
    let mut answer = Vec::new();
    // Without a person to ask, or to tell, nobody agrees.
    let asked = write!(io::stderr(), "obento: {question} ").and_then(|()| io::stderr().flush());
    let answered = asked.and_then(|()| io::stdin().lock().read_until(b'\n', &mut answer));
    answered.is_ok() && matches!(answer.first(), Some(b'y' | b'Y'))
}
