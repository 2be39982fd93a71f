//! The grammar of a call: `call:NAME{key:value,…}`, strings between quote tokens, everything else bare.
//!
//! Strings are delimited by a token, not by a character, so braces, quotes and markup inside them are text. Called by `parser`.

use serde_json::{Map, Value};

/// Deepest nesting of objects and lists. Far beyond any tool, far below the stack.
const DEEPEST: usize = 64;

/// A piece of a call as it was generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symbol {
    Char(char),
    /// The token that opens and closes a string.
    Quote,
}

/// A call that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub name: String,
    pub arguments: Map<String, Value>,
}

/// Reads what stands between the call tokens; `None` when it is no call.
#[must_use]
pub fn read(symbols: &[Symbol]) -> Option<Call> {
    let mut reader = Reader { symbols, at: 0 };
    reader.skip_space();
    if !"call:".chars().all(|expected| reader.take(expected)) {
        return None;
    }
    let name = reader.bare("{")?.trim().to_owned();
    if name.is_empty() || !reader.take('{') {
        return None;
    }
    let arguments = reader.object(1)?;
    reader.skip_space();
    (reader.at == symbols.len()).then_some(Call { name, arguments })
}

/// The same as text, for a call that cannot be read.
#[must_use]
pub fn text(symbols: &[Symbol]) -> String {
    let character = |symbol: &Symbol| match symbol {
        Symbol::Char(character) => *character,
        Symbol::Quote => '"',
    };
    symbols.iter().map(character).collect()
}

struct Reader<'a> {
    symbols: &'a [Symbol],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<Symbol> {
        self.symbols.get(self.at).copied()
    }

    fn take(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(Symbol::Char(expected));
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(Symbol::Char(space)) if space.is_whitespace()) {
            self.at += 1;
        }
    }

    /// After the opening brace, up to and with the closing one.
    fn object(&mut self, depth: usize) -> Option<Map<String, Value>> {
        let mut map = Map::new();
        if depth > DEEPEST {
            return None;
        }
        self.skip_space();
        if self.take('}') {
            return Some(map);
        }
        loop {
            let key = self.key()?;
            self.skip_space();
            if !self.take(':') {
                return None;
            }
            map.insert(key, self.value(depth)?);
            self.skip_space();
            if self.take('}') {
                return Some(map);
            }
            if !self.take(',') {
                return None;
            }
        }
    }

    /// After the opening bracket, up to and with the closing one.
    fn list(&mut self, depth: usize) -> Option<Vec<Value>> {
        let mut list = Vec::new();
        if depth > DEEPEST {
            return None;
        }
        self.skip_space();
        if self.take(']') {
            return Some(list);
        }
        loop {
            list.push(self.value(depth)?);
            self.skip_space();
            if self.take(']') {
                return Some(list);
            }
            if !self.take(',') {
                return None;
            }
        }
    }

    fn key(&mut self) -> Option<String> {
        self.skip_space();
        match self.peek()? {
            Symbol::Quote => self.string(),
            Symbol::Char('"') => self.json_string(),
            Symbol::Char(_) => {
                let key = self.bare(":{}[],")?.trim().to_owned();
                (!key.is_empty()).then_some(key)
            }
        }
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.skip_space();
        match self.peek()? {
            Symbol::Quote => self.string().map(Value::String),
            Symbol::Char('"') => self.json_string().map(Value::String),
            Symbol::Char('{') => {
                self.at += 1;
                self.object(depth + 1).map(Value::Object)
            }
            Symbol::Char('[') => {
                self.at += 1;
                self.list(depth + 1).map(Value::Array)
            }
            Symbol::Char(_) => Some(literal(self.bare(",{}[]")?.trim())),
        }
    }

    /// Characters up to one of `ends`, which must come.
    fn bare(&mut self, ends: &str) -> Option<String> {
        let mut text = String::new();
        loop {
            match self.peek()? {
                Symbol::Char(end) if ends.contains(end) => return Some(text),
                Symbol::Char(character) => text.push(character),
                Symbol::Quote => return None,
            }
            self.at += 1;
        }
    }

    /// Between two quote tokens: whatever stands there.
    fn string(&mut self) -> Option<String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let symbol = self.peek()?;
            self.at += 1;
            match symbol {
                Symbol::Quote => return Some(text),
                Symbol::Char(character) => text.push(character),
            }
        }
    }

    /// A string as JSON writes it, which the model sometimes does.
    fn json_string(&mut self) -> Option<String> {
        let mut text = String::from('"');
        self.at += 1;
        let mut escaped = false;
        loop {
            let Symbol::Char(character) = self.peek()? else { return None };
            self.at += 1;
            // A string that is otherwise sound may run over several lines.
            match character {
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                other => text.push(other),
            }
            if character == '"' && !escaped {
                return serde_json::from_str(&text).ok();
            }
            escaped = character == '\\' && !escaped;
        }
    }
}

/// A value without quotes. Nothing at all is null: some templates write it so.
fn literal(text: &str) -> Value {
    match text {
        "" | "null" | "None" | "none" => Value::Null,
        "true" | "True" => Value::Bool(true),
        "false" | "False" => Value::Bool(false),
        text => match serde_json::from_str::<serde_json::Number>(text) {
            Ok(number) => Value::Number(number),
            Err(_) => Value::String(text.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `§` stands for the quote token.
    fn symbols(text: &str) -> Vec<Symbol> {
        text.chars().map(|c| if c == '§' { Symbol::Quote } else { Symbol::Char(c) }).collect()
    }

    fn arguments(text: &str) -> Option<Value> {
        read(&symbols(&format!("call:f{text}"))).map(|call| Value::Object(call.arguments))
    }

    #[test]
    fn every_kind_of_value_is_read() {
        let found = arguments(
            "{city:§Köln {x}, \"y\" <turn|>§,n:-2.5e3,big:9007199254740993,yes:true,no:False,nothing:null,none:None,empty:,\
             bare:now,list:[1,§a,b]§,[]],deep:{a:{b:§}§}},§key:§:1,\"json\": \"a\\\"b\"}",
        );
        let expected = json!({
            "city": "Köln {x}, \"y\" <turn|>", "n": -2500.0, "big": 9_007_199_254_740_993_u64, "yes": true, "no": false,
            "nothing": null, "none": null, "empty": null, "bare": "now", "list": [1, "a,b]", []],
            "deep": {"a": {"b": "}"}}, "key:": 1, "json": "a\"b",
        });
        assert_eq!(found, Some(expected));
        assert_eq!(arguments("{}"), Some(json!({})));
        assert_eq!(arguments(" { a : 1 , b : §x§ } "), Some(json!({"a": 1, "b": "x"})));
    }

    #[test]
    fn what_is_no_call_is_not_made_one() {
        for wrong in
            ["", "{", "{a:§x}", "{a:1", "{a}", "{a:1}}", "{a:1} more", "{:1}", "{a:[1}", "{a:1 b:§x§}"]
        {
            assert_eq!(arguments(wrong), None, "{wrong}");
        }
        for wrong in ["f{}", "call:{}", "call:f", ""] {
            assert_eq!(read(&symbols(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn nesting_has_an_end() {
        let nested = |depth: usize| format!("{{a:{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(arguments(&nested(DEEPEST - 1)).is_some());
        assert_eq!(arguments(&nested(DEEPEST)), None);
        assert_eq!(arguments(&nested(1_000_000)), None);
    }
}
