//! Source files, and the words of their code: what is in comments, in literals or only there for
//! tests does not count.

/// A file of the workspace, by its path from the root.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// An identifier, a number, `::`, or one character.
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

impl Source {
    pub(crate) fn new(path: impl Into<String>, text: impl Into<String>) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    /// Whether the whole file is tests: `foo/tests.rs`, or anything below `tests/`.
    pub(crate) fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || format!("/{}", self.path).contains("/tests/")
    }
}

/// The text with spaces in place of comments and literals, line by line the same.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let after_word = code.ends_with(is_word);
        let length = opaque(rest, after_word);
        let (part, remaining) = rest.split_at(length.unwrap_or(next.len_utf8()));
        match length {
            Some(_) => code.extend(part.chars().map(|it| if it == '\n' { '\n' } else { ' ' })),
            None => code.push_str(part),
        }
        rest = remaining;
    }
    code
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The bytes of the comment or literal that `rest` begins with.
fn opaque(rest: &str, after_word: bool) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    if rest.starts_with('"') {
        return Some(1 + up_to_quote(rest.get(1..)?, '"'));
    }
    if let Some(inside) = rest.strip_prefix('\'') {
        let mut characters = inside.chars();
        let first = characters.next()?;
        // Anything else is a lifetime.
        let is_literal = first == '\\' || characters.next() == Some('\'');
        return is_literal.then(|| 1 + up_to_quote(inside, '\''));
    }
    if after_word { None } else { raw_string(rest) }
}

/// The bytes up to and with the closing quote.
fn up_to_quote(inside: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (position, character) in inside.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return position + 1,
            _ => {}
        }
    }
    inside.len()
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut position) = (0_usize, 0);
    while let Some(left) = rest.get(position..).filter(|left| !left.is_empty()) {
        if left.starts_with("/*") {
            depth += 1;
            position += 2;
        } else if left.starts_with("*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return position;
            }
        } else {
            position += left.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// `r"…"`, `br#"…"#` and the like.
fn raw_string(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let unhashed = inside.trim_start_matches('#');
    let hashes = inside.len() - unhashed.len();
    let inside = unhashed.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = rest.len() - inside.len();
    Some(inside.find(&end).map_or(rest.len(), |position| start + position + end.len()))
}

/// The words and signs of code.
pub(crate) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (code, 1);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if is_word(first) => rest.find(|it| !is_word(it)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        let (text, remaining) = rest.split_at(length);
        if first == '\n' {
            line += 1;
        }
        if !first.is_whitespace() {
            tokens.push(Token { text, line });
        }
        rest = remaining;
    }
    tokens
}

const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
const ITEMS: [&str; 14] = [
    "async", "const", "enum", "extern", "fn", "impl", "mod", "pub", "static", "struct", "trait",
    "type", "unsafe", "use",
];

/// What is compiled without tests: no item under `#[cfg(test)]`.
pub(crate) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let Some((first, after)) = rest.split_first() {
        if is_at(rest, &CFG_TEST) {
            rest = rest.get(CFG_TEST.len()..).map_or(&[][..], after_item);
        } else {
            kept.push(*first);
            rest = after;
        }
    }
    kept
}

/// The names of `#[cfg(test)] mod name;`.
pub(crate) fn test_modules(tokens: &[Token<'_>]) -> Vec<String> {
    let starts = tokens.windows(CFG_TEST.len() + 3);
    let declared = starts.filter(|window| is_at(window, &CFG_TEST));
    let names = declared.filter_map(|window| match window.get(CFG_TEST.len()..)? {
        [keyword, name, end] if keyword.text == "mod" && end.text == ";" => Some(name.text),
        _ => None,
    });
    names.map(str::to_owned).collect()
}

fn is_at(tokens: &[Token<'_>], words: &[&str]) -> bool {
    tokens.len() >= words.len() && tokens.iter().zip(words).all(|(token, word)| token.text == *word)
}

/// What follows an item, a field or a variant, and the attributes before it.
fn after_item<'t, 'a>(mut rest: &'t [Token<'a>]) -> &'t [Token<'a>] {
    while is_at(rest, &["#", "["]) {
        rest = after_group(rest.get(1..).unwrap_or_default());
    }
    let is_item = rest.first().is_some_and(|first| ITEMS.contains(&first.text));
    while let Some((first, after)) = rest.split_first() {
        match first.text {
            ";" => return after,
            "," if !is_item => return after,
            "{" => return after_group(rest),
            "(" | "[" => rest = after_group(rest),
            // The end of whatever holds it.
            "}" | ")" | "]" => return rest,
            _ => rest = after,
        }
    }
    rest
}

/// What follows the bracket that closes the one `rest` begins with.
pub(crate) fn after_group<'t, 'a>(mut rest: &'t [Token<'a>]) -> &'t [Token<'a>] {
    let mut depth = 0_usize;
    while let Some((first, after)) = rest.split_first() {
        match first.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        rest = after;
        if depth == 0 {
            break;
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let code = code(text);
        let all = tokens(&code);
        let words: Vec<&str> = without_tests(&all).iter().map(|token| token.text).collect();
        assert_eq!(words.join(" "), expected, "{text}");
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        check("a // b \"\nc", "a c");
        check("a /* b /* c */ d */ e", "a e");
        check(r#"f("use \" x", 'y', b'\'', "\\")"#, "f ( , , b , )");
        check("r#\"a \" b\"# br\"x\\\" c\"y\" r#type bar\"x\"", "c r # type bar");
        check("fn f<'a>(x: &'a str) {}", "fn f < ' a > ( x : & ' a str ) { }");
    }

    #[test]
    fn lines_stay() {
        let code = code("/* 1\n2 */ \"3\n\" a // é\nb");
        let lines: Vec<usize> = tokens(&code).iter().map(|token| token.line).collect();
        assert_eq!(lines, [3, 4]);
    }

    #[test]
    fn items_for_tests_are_left_out() {
        check("a #[cfg(test)] mod tests { x { y } } b", "a b");
        check("a #[cfg(test)] mod tests; b", "a b");
        check("a #[cfg(test)] #[derive(X)] pub(crate) fn f<A, B>(x: [u8; 3]) -> B { } b", "a b");
        check("a #[cfg(test)] use x::y; b", "a b");
        check("S { a, #[cfg(test)] x: f(1, 2), b }", "S { a , b }");
        check("S { a, #[cfg(test)] x: u8 } b", "S { a , } b");
        check("#[cfg(not(test))] a", "# [ cfg ( not ( test ) ) ] a");
    }

    #[test]
    fn modules_for_tests_are_known() {
        let code = code("mod a; #[cfg(test)] mod walk; #[cfg(test)] mod tests { }");
        assert_eq!(test_modules(&tokens(&code)), ["walk"]);
    }

    #[test]
    fn test_files_are_known_by_their_place() {
        let is_test = |path: &str| Source::new(path, "").is_test();
        assert!(is_test("crates/core/src/log/tests.rs") && is_test("xtask/tests/tidy/main.rs"));
        assert!(is_test("tests/it/main.rs"));
        assert!(!is_test("crates/core/src/log.rs") && !is_test("crates/core/src/latests.rs"));
    }
}
