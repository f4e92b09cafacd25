//! From a text to a tree.

/// How deep parentheses may go.
const DEEPEST: usize = 64;
/// How many numbers, names and symbols there may be: each operator of a row is one level of the tree.
const MOST_TOKENS: usize = 1000;
/// The names that an expression may use.
const VARIABLES: [&str; 6] = ["vcpus", "memory_mib", "default_enis", "ips_per_eni", "max_pods", "instance_type"];
/// Longer ones first.
const SYMBOLS: [&str; 20] =
    ["&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", "(", ")", ",", "."];
/// Operators, those that bind less first.
const LEVELS: [&[(&str, Operator)]; 3] = [
    &[
        ("<", Operator::Less),
        ("<=", Operator::AtMost),
        (">", Operator::More),
        (">=", Operator::AtLeast),
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)],
];

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Int(i64),
    Double(f64),
    Bool(bool),
    Text(String),
    Variable(&'static str),
    Negative(Box<Node>),
    Not(Box<Node>),
    If(Box<[Node; 3]>),
    Both(Box<[Node; 2]>),
    Either(Box<[Node; 2]>),
    Binary(Operator, Box<[Node; 2]>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    Unequal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Int,
    Double,
    Max,
    Min,
    StartsWith,
    EndsWith,
    Contains,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(String),
    Name(String),
    Text(String),
    Symbol(&'static str),
}

type Parsed = Result<Node, String>;

/// The tree of a text, or what is wrong with it.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    let out = parser.choice()?;
    match parser.tokens.get(parser.at) {
        None => Ok(out),
        Some(token) => Err(format!("{token:?} is too much")),
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let (mut out, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_digit() {
            let length = number_length(rest);
            out.push(Token::Number(rest[..length].to_owned()));
            length
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            out.push(Token::Name(rest[..length].to_owned()));
            length
        } else if first == '"' || first == '\'' {
            let inside = rest[1..].find(first).ok_or("a text does not end")?;
            out.push(Token::Text(rest[1..=inside].to_owned()));
            inside + 2
        } else {
            let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
            let symbol = symbol.ok_or_else(|| format!("{first:?} is nothing that is known"))?;
            out.push(Token::Symbol(symbol));
            symbol.len()
        };
        if out.len() > MOST_TOKENS {
            return Err("it is too long".to_owned());
        }
        rest = rest[length..].trim_start();
    }
    Ok(out)
}

/// Digits, a point and digits, an exponent with its sign; or hexadecimal digits.
fn number_length(text: &str) -> usize {
    let mut before = ' ';
    let is_of = |c: char, before: char| {
        c.is_ascii_alphanumeric() || c == '.' || ((c == '+' || c == '-') && (before == 'e' || before == 'E'))
    };
    for (at, c) in text.char_indices() {
        if !is_of(c, before) {
            return at;
        }
        before = c;
    }
    text.len()
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    /// Takes a symbol if it comes next.
    fn take(&mut self, symbol: &str) -> bool {
        let is_next = matches!(self.tokens.get(self.at), Some(Token::Symbol(next)) if *next == symbol);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        if self.take(symbol) { Ok(()) } else { Err(format!("{symbol:?} is missing")) }
    }

    fn choice(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("it goes too deep".to_owned());
        }
        let mut out = self.either()?;
        if self.take("?") {
            let then = self.choice()?;
            self.expect(":")?;
            out = Node::If(Box::new([out, then, self.choice()?]));
        }
        self.depth -= 1;
        Ok(out)
    }

    fn either(&mut self) -> Parsed {
        let mut out = self.both()?;
        while self.take("||") {
            out = Node::Either(Box::new([out, self.both()?]));
        }
        Ok(out)
    }

    fn both(&mut self) -> Parsed {
        let mut out = self.level(0)?;
        while self.take("&&") {
            out = Node::Both(Box::new([out, self.level(0)?]));
        }
        Ok(out)
    }

    /// Operators of one level, from the left to the right.
    fn level(&mut self, level: usize) -> Parsed {
        let Some(operators) = LEVELS.get(level) else { return self.sign() };
        let mut out = self.level(level + 1)?;
        while let Some((_, operator)) = operators.iter().find(|(symbol, _)| self.take(symbol)) {
            out = Node::Binary(*operator, Box::new([out, self.level(level + 1)?]));
        }
        Ok(out)
    }

    fn sign(&mut self) -> Parsed {
        let is_negative = self.take("-");
        if is_negative || self.take("!") {
            self.depth += 1;
            if self.depth > DEEPEST {
                return Err("it goes too deep".to_owned());
            }
            let of = Box::new(self.sign()?);
            self.depth -= 1;
            return Ok(if is_negative { Node::Negative(of) } else { Node::Not(of) });
        }
        self.member()
    }

    /// A thing, and the functions of texts that are asked of it.
    fn member(&mut self) -> Parsed {
        let mut out = self.thing()?;
        while self.take(".") {
            let function = match self.next()? {
                Token::Name(name) if name == "startsWith" => Function::StartsWith,
                Token::Name(name) if name == "endsWith" => Function::EndsWith,
                Token::Name(name) if name == "contains" => Function::Contains,
                other => return Err(format!("there is no function {other:?} of a text")),
            };
            self.expect("(")?;
            let part = self.choice()?;
            self.expect(")")?;
            out = Node::Call(function, vec![out, part]);
        }
        Ok(out)
    }

    fn next(&mut self) -> Result<Token, String> {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned().ok_or_else(|| "it ends too early".to_owned())
    }

    fn thing(&mut self) -> Parsed {
        match self.next()? {
            Token::Number(text) => number(&text),
            Token::Text(text) => Ok(Node::Text(text)),
            Token::Name(name) if name == "true" || name == "false" => Ok(Node::Bool(name == "true")),
            Token::Name(name) if self.take("(") => self.call(&name),
            Token::Name(name) => {
                let known = VARIABLES.into_iter().find(|known| *known == name);
                known.map(Node::Variable).ok_or_else(|| format!("there is no variable {name}"))
            }
            Token::Symbol("(") => {
                let out = self.choice()?;
                self.expect(")")?;
                Ok(out)
            }
            Token::Symbol(symbol) => Err(format!("{symbol:?} is in the wrong place")),
        }
    }

    fn call(&mut self, name: &str) -> Parsed {
        let (function, count) = match name {
            "int" => (Function::Int, 1),
            "double" => (Function::Double, 1),
            "max" => (Function::Max, 2),
            "min" => (Function::Min, 2),
            _ => return Err(format!("there is no function {name}")),
        };
        let mut arguments = vec![self.choice()?];
        while self.take(",") {
            arguments.push(self.choice()?);
        }
        self.expect(")")?;
        if arguments.len() == count {
            Ok(Node::Call(function, arguments))
        } else {
            Err(format!("{name} takes {count}"))
        }
    }
}

fn number(text: &str) -> Parsed {
    let found = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok().map(Node::Int),
        None if text.contains(['.', 'e', 'E']) => {
            text.parse().ok().filter(|number: &f64| number.is_finite()).map(Node::Double)
        }
        None => text.parse().ok().map(Node::Int),
    };
    found.ok_or_else(|| format!("{text} is no number"))
}
