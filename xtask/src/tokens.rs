//! The tokens of a Rust file without comments, literals, and items under `#[cfg(test)]`.

/// Returns the names and the signs of `source`. `::` is one sign.
pub fn tokens(source: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), source);
    while let Some(first) = rest.chars().next() {
        let len = skipped(rest);
        if len > 0 {
            rest = rest.get(len..).unwrap_or_default();
            continue;
        }
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let len = match rest.find(|c: char| !is_name(c)) {
            None => rest.len(),
            Some(0) if rest.starts_with("::") => 2,
            Some(0) => first.len_utf8(),
            Some(len) => len,
        };
        if !first.is_whitespace() {
            found.push(rest[..len].to_owned());
        }
        rest = &rest[len..];
    }
    without_tests(&found)
}

/// Returns the length of the comment or literal at the start of `rest`, or 0.
fn skipped(rest: &str) -> usize {
    let to_end = |end: &str| rest.find(end).map_or(rest.len(), |at| at + end.len());
    if rest.starts_with("//") {
        return to_end("\n");
    }
    if rest.starts_with("/*") {
        return to_end("*/");
    }
    let prefix = ["br", "cr", "b", "c", "r"].into_iter().find(|prefix| {
        rest.strip_prefix(prefix).is_some_and(|rest| rest.trim_start_matches('#').starts_with('"'))
    });
    let prefix = prefix.map_or(0, str::len);
    let literal = &rest[prefix..];
    let hashes = literal.len() - literal.trim_start_matches('#').len();
    if rest[..prefix].ends_with('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        let start = prefix + hashes + 1;
        return rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len());
    }
    match literal.as_bytes() {
        [b'"', ..] => prefix + closed(literal, '"'),
        // A lifetime has no second quote.
        [b'\'', b'\\', ..] => closed(literal, '\''),
        [b'\'', ..] if literal.chars().nth(2) == Some('\'') => closed(literal, '\''),
        _ => 0,
    }
}

/// Returns the length of a literal up to the second `quote`.
fn closed(literal: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in literal.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    literal.len()
}

/// Leaves out each item whose attribute begins with `#[cfg(test` or `#[cfg(all(test`.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while let Some(token) = tokens.get(at) {
        let begins = |words: &[&str]| {
            tokens[at..].iter().zip(words).filter(|(one, two)| one == two).count() == words.len()
        };
        if begins(&["#", "[", "cfg", "(", "test"]) || begins(&["#", "[", "cfg", "(", "all", "(", "test"]) {
            at += item_len(&tokens[at..]);
        } else {
            kept.push(token.clone());
            at += 1;
        }
    }
    kept
}

/// Returns the number of tokens of an item with its attributes: up to the `;` or `,` that ends it, or up to the end of its
/// braces.
fn item_len(tokens: &[String]) -> usize {
    let (mut depth, mut is_use) = (0_usize, false);
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            // The end of the enclosing block.
            ")" | "]" | "}" if depth == 0 => return at,
            ")" | "]" => depth -= 1,
            "}" => {
                depth -= 1;
                if depth == 0 && !is_use {
                    return at + 1;
                }
            }
            "use" if depth == 0 => is_use = true,
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_left_out() {
        let source = "a::b // c\n /* d */ \"e\\\"\" r#\"f\"\"# 'g' '\\'' b\"h\" &'static i";
        assert_eq!(tokens(source), ["a", "::", "b", "&", "'", "static", "i"]);
    }

    #[test]
    fn items_of_tests_are_left_out() {
        let source =
            "#[cfg(test)]\nmod tests { fn a() { b } }\nuse c;\n#[cfg(test)]\npub(crate) use d::{e, f};\ng";
        assert_eq!(tokens(source), ["use", "c", ";", "g"]);
    }
}
