//! Subset of SOQL: `SELECT fields | COUNT() FROM X [WHERE f = v | f IN (v, …) [AND …]] [LIMIT n]`.
//!
//! Everything else is rejected as malformed.

use serde_json::Value;

use super::errors::ApiError;

#[derive(Debug, PartialEq)]
pub(crate) struct Query {
    /// Empty for `COUNT()`.
    pub(crate) fields: Vec<String>,
    pub(crate) object: String,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) limit: Option<usize>,
}

/// The field equals one of the values.
#[derive(Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) field: String,
    pub(crate) values: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Literal(Value),
    Symbol(char),
    End,
}

pub(crate) fn parse(text: &str) -> Result<Query, ApiError> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0 };
    parser.keyword("SELECT")?;
    let fields = if parser.take_keyword_if("COUNT") {
        parser.symbol('(')?;
        parser.symbol(')')?;
        Vec::new()
    } else {
        parser.list(Parser::word)?
    };
    parser.keyword("FROM")?;
    let object = parser.word()?;
    let mut conditions = Vec::new();
    if parser.take_keyword_if("WHERE") {
        conditions.push(parser.condition()?);
        while parser.take_keyword_if("AND") {
            conditions.push(parser.condition()?);
        }
    }
    let limit = if parser.take_keyword_if("LIMIT") { Some(parser.limit()?) } else { None };
    match parser.peek() {
        Token::End => Ok(Query { fields, object, conditions, limit }),
        other => Err(unexpected(other)),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).unwrap_or(&Token::End)
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn take_keyword_if(&mut self, keyword: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(word) if word.eq_ignore_ascii_case(keyword));
        self.next += usize::from(found);
        found
    }

    fn keyword(&mut self, keyword: &str) -> Result<(), ApiError> {
        if self.take_keyword_if(keyword) { Ok(()) } else { Err(unexpected(self.peek())) }
    }

    fn take_symbol_if(&mut self, symbol: char) -> bool {
        let found = *self.peek() == Token::Symbol(symbol);
        self.next += usize::from(found);
        found
    }

    fn symbol(&mut self, symbol: char) -> Result<(), ApiError> {
        if self.take_symbol_if(symbol) { Ok(()) } else { Err(unexpected(self.peek())) }
    }

    fn word(&mut self) -> Result<String, ApiError> {
        match self.take() {
            Token::Word(word) => Ok(word),
            other => Err(unexpected(&other)),
        }
    }

    fn list<T>(&mut self, item: fn(&mut Parser) -> Result<T, ApiError>) -> Result<Vec<T>, ApiError> {
        let mut items = vec![item(self)?];
        while self.take_symbol_if(',') {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn condition(&mut self) -> Result<Condition, ApiError> {
        let field = self.word()?;
        if self.take_keyword_if("IN") {
            self.symbol('(')?;
            let values = self.list(Parser::literal)?;
            self.symbol(')')?;
            return Ok(Condition { field, values });
        }
        self.symbol('=')?;
        Ok(Condition { field, values: vec![self.literal()?] })
    }

    fn literal(&mut self) -> Result<Value, ApiError> {
        match self.take() {
            Token::Literal(value) => Ok(value),
            Token::Word(word) => match word.to_ascii_lowercase().as_str() {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                "null" => Ok(Value::Null),
                _ => Err(unexpected(&Token::Word(word))),
            },
            other => Err(unexpected(&other)),
        }
    }

    fn limit(&mut self) -> Result<usize, ApiError> {
        let token = self.take();
        let number = if let Token::Literal(value) = &token { value.as_u64() } else { None };
        number.map(|number| number as usize).ok_or_else(|| unexpected(&token))
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, ApiError> {
    let mut tokens = Vec::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            _ if character.is_whitespace() => {}
            '\'' => {
                let mut literal = String::new();
                loop {
                    match characters.next() {
                        Some('\'') => break,
                        Some('\\') => literal.push(unescaped(characters.next())?),
                        Some(other) => literal.push(other),
                        None => return Err(malformed("the literal has no closing quote")),
                    }
                }
                tokens.push(Token::Literal(Value::String(literal)));
            }
            ',' | '(' | ')' | '=' => tokens.push(Token::Symbol(character)),
            _ if character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.') => {
                let mut word = String::from(character);
                while let Some(more) =
                    characters.next_if(|next| next.is_ascii_alphanumeric() || matches!(next, '_' | '.'))
                {
                    word.push(more);
                }
                let number = word.parse::<serde_json::Number>();
                tokens.push(number.map_or(Token::Word(word), |number| Token::Literal(Value::Number(number))));
            }
            other => return Err(malformed(format!("unexpected character '{other}'"))),
        }
    }
    Ok(tokens)
}

fn unescaped(character: Option<char>) -> Result<char, ApiError> {
    match character {
        Some(plain @ ('\'' | '"' | '\\')) => Ok(plain),
        Some('n' | 'N') => Ok('\n'),
        Some('r' | 'R') => Ok('\r'),
        Some('t' | 'T') => Ok('\t'),
        _ => Err(malformed("invalid string literal: illegal character sequence")),
    }
}

fn unexpected(token: &Token) -> ApiError {
    match token {
        Token::Word(word) => malformed(format!("unexpected token: {word}")),
        Token::Literal(value) => malformed(format!("unexpected token: {value}")),
        Token::Symbol(symbol) => malformed(format!("unexpected token: {symbol}")),
        Token::End => malformed("unexpected end of query"),
    }
}

pub(crate) fn malformed(message: impl Into<String>) -> ApiError {
    ApiError::bad_request("MALFORMED_QUERY", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn complete_query_parses() {
        let query = parse(
            "select Id, LastName from Lead where Email = 'o\\'hara\\\\@example.com' AND Score__c IN (1, null) limit 5",
        );
        let expected = Query {
            fields: vec!["Id".to_owned(), "LastName".to_owned()],
            object: "Lead".to_owned(),
            conditions: vec![
                Condition { field: "Email".to_owned(), values: vec![json!("o'hara\\@example.com")] },
                Condition { field: "Score__c".to_owned(), values: vec![json!(1), json!(null)] },
            ],
            limit: Some(5),
        };
        assert_eq!(query, Ok(expected));
        assert_eq!(parse("SELECT COUNT() FROM Lead").unwrap().fields, Vec::<String>::new());
    }

    #[test]
    fn unsupported_queries_are_rejected() {
        for text in [
            "",
            "SELECT FROM Lead",
            "SELECT Id FROM Lead WHERE Email = 'open",
            "SELECT Id FROM Lead WHERE Email LIKE 'a%'",
            "SELECT Id FROM Lead WHERE Email = 'a' OR Email = 'b'",
            "SELECT Id FROM Lead ORDER BY Id",
            "SELECT Id FROM Lead WHERE Email = 'a\\q'",
            "SELECT Id FROM Lead LIMIT many",
            "SELECT Id FROM Lead; DROP",
        ] {
            assert_eq!(parse(text).map_err(|error| error.code), Err("MALFORMED_QUERY"), "{text}");
        }
    }
}
