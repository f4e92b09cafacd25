//! MIME archives (RFC 2046), as far as cloud-init makes use of them.

use super::UserDataError;

/// The boundary of the archives that are written.
const BOUNDARY: &str = "//";
/// A script.
pub(super) const SHELL_SCRIPT: &str = r#"text/x-shellscript; charset="us-ascii""#;
/// A configuration of a node of the family AL2023.
pub(super) const NODE_CONFIG: &str = "application/node.eks.aws";

/// A part of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    headers: Vec<(String, String)>,
    body: String,
}

impl Part {
    /// A part of a type.
    pub(super) fn new(content_type: &str, body: impl Into<String>) -> Self {
        Self { headers: vec![("Content-Type".to_owned(), content_type.to_owned())], body: body.into() }
    }
}

/// Whether a text says that it is an archive.
pub(super) fn is_archive(text: &str) -> bool {
    ["MIME-Version:", "Content-Type:"].iter().any(|start| text.trim_start().starts_with(start))
}

/// The parts of an archive.
pub(super) fn parts(text: &str) -> Result<Vec<Part>, UserDataError> {
    let text = text.replace('\r', "");
    let (headers, body) = headers(text.trim_start())?;
    let content_type = value(&headers, "content-type").ok_or(error("it has no Content-Type"))?;
    if !content_type.to_ascii_lowercase().starts_with("multipart/") {
        return Err(error("it is not of several parts"));
    }
    let boundary = boundary(content_type).ok_or(error("it names no boundary"))?;
    let mut out = Vec::new();
    let mut current: Option<Vec<&str>> = None;
    for line in body.split('\n') {
        let delimiter = line.trim_end().strip_prefix("--").and_then(|rest| rest.strip_prefix(boundary));
        match (delimiter, current.as_mut()) {
            (Some("" | "--"), _) => {
                if let Some(lines) = current.take() {
                    let (headers, body) = self::headers(&lines.join("\n")).map(|(h, b)| (h, b.to_owned()))?;
                    out.push(Part { headers, body });
                }
                if delimiter == Some("--") {
                    return Ok(out);
                }
                current = Some(Vec::new());
            }
            (_, Some(lines)) => lines.push(line),
            (_, None) => {}
        }
    }
    Err(error("it has no end"))
}

/// Puts parts together.
pub(super) fn archive(parts: &[Part]) -> String {
    let mut out = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\n");
    for part in parts {
        out.extend(["\n--", BOUNDARY, "\n"]);
        out.extend(part.headers.iter().flat_map(|(name, value)| [name, ": ", value, "\n"]));
        out.extend(["\n", &part.body.replace('\r', "")]);
    }
    out.extend(["\n--", BOUNDARY, "--\n"]);
    out
}

const fn error(message: &'static str) -> UserDataError {
    UserDataError::Mime { message }
}

type Headers = Vec<(String, String)>;

/// The headers, and what comes after the line without text that ends them. A line that begins with a space goes on
/// with the one before it.
fn headers(text: &str) -> Result<(Headers, &str), UserDataError> {
    let mut out: Headers = Vec::new();
    let mut rest = text;
    loop {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        rest = after;
        if line.is_empty() {
            return Ok((out, rest));
        }
        if let (true, Some((_, value))) = (line.starts_with([' ', '\t']), out.last_mut()) {
            *value = format!("{value} {}", line.trim());
        } else {
            let (name, value) = line.split_once(':').ok_or(error("a header has no colon"))?;
            if name.is_empty() || name.contains([' ', '\t']) {
                return Err(error("a header has no name"));
            }
            out.push((name.to_owned(), value.trim().to_owned()));
        }
    }
}

fn value<'h>(headers: &'h Headers, name: &str) -> Option<&'h str> {
    headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

fn boundary(content_type: &str) -> Option<&str> {
    let parameters = content_type.split(';').skip(1).map(str::trim);
    let named = parameters.filter_map(|p| p.split_once('='));
    let (_, value) = named.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"))?;
    let value = value.trim();
    let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let parts = [
            Part::new(SHELL_SCRIPT, "#!/bin/sh\necho a\n"),
            Part::new(NODE_CONFIG, "a: b"),
            Part::new(NODE_CONFIG, ""),
        ];
        assert_eq!(super::parts(&archive(&parts)).expect("an archive"), parts);
    }

    #[test]
    fn headers_of_parts_and_any_boundary_are_understood() {
        let text = "\nContent-Type: multipart/mixed;\n boundary=B\r\nMIME-Version: 1.0\r\n\r\npreamble\r\n--B  \r\n\
            Content-Type: text/x-shellscript\r\nContent-Disposition: attachment; filename=\"a\"\r\n\r\n--Bx\r\n--B--\r\nepilogue";
        let found = parts(text).expect("an archive");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].body, "--Bx");
        assert_eq!(found[0].headers[1], ("Content-Disposition".to_owned(), "attachment; filename=\"a\"".to_owned()));
    }

    #[test]
    fn what_is_no_archive_is_an_error() {
        for text in [
            "MIME-Version: 1.0\n\n--//\n\na\n--//--\n",
            "Content-Type: text/plain\n\na",
            "Content-Type: multipart/mixed\n\n--//\n\na\n--//--\n",
            "Content-Type: multipart/mixed; boundary=\"//\"\n\n--//\n\na\n",
            "Content-Type: multipart/mixed; boundary=\"//\"\nnonsense\n\n--//--\n",
            "Content-Type: multipart/mixed; boundary=\"//\"\n\n--//\nnonsense\n\na\n--//--\n",
        ] {
            assert!(matches!(parts(text), Err(UserDataError::Mime { .. })), "{text}");
        }
    }
}
