//! Blocks of content: the parts of a tool's result.

use ceased_core::json::format::write_string;
use serde::{Deserialize, Serialize};

/// A block of content of a tool's result, of every type that MCP has.
///
/// Revisions before 2025-03-26 know no audio and those before 2025-06-18 no resource links; a
/// command's blocks of these types become text there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    #[serde(rename_all = "camelCase")]
    Text {
        /// The text.
        text: String,
        /// Audience and importance.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        annotations: Option<Annotations>,
    },
    /// An image.
    #[serde(rename_all = "camelCase")]
    Image {
        /// Its bytes in base64.
        data: String,
        /// Its type, such as `image/png`.
        mime_type: String,
        /// Audience and importance.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        annotations: Option<Annotations>,
    },
    /// A sound.
    #[serde(rename_all = "camelCase")]
    Audio {
        /// Its bytes in base64.
        data: String,
        /// Its type, such as `audio/wav`.
        mime_type: String,
        /// Audience and importance.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        annotations: Option<Annotations>,
    },
    /// A resource that the client can read.
    ResourceLink(ResourceLink),
    /// A resource with its content.
    #[serde(rename_all = "camelCase")]
    Resource {
        /// The content.
        resource: EmbeddedResource,
        /// Audience and importance.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        annotations: Option<Annotations>,
    },
}

/// A resource that the client can read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceLink {
    /// Where it is.
    pub uri: String,
    /// Its name for programs.
    pub name: String,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its description for models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Audience and importance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
}

/// A resource with its content: text, or bytes in base64.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EmbeddedResource {
    /// Text.
    #[serde(rename_all = "camelCase")]
    Text {
        /// Where it is.
        uri: String,
        /// Its type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        /// The text.
        text: String,
    },
    /// Bytes.
    #[serde(rename_all = "camelCase")]
    Blob {
        /// Where it is.
        uri: String,
        /// Its type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        /// The bytes in base64.
        blob: String,
    },
}

/// Audience and importance of a block.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// Readers of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<Vec<Audience>>,
    /// From 0, least important, to 1, required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    /// When the content changed last, as ISO 8601 has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

/// A reader of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// The person.
    User,
    /// The model.
    Assistant,
}

impl Content {
    /// A block of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), annotations: None }
    }

    /// An image, its bytes in base64.
    #[must_use]
    pub fn image(base64: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Image { data: base64.into(), mime_type: mime_type.into(), annotations: None }
    }

    /// A sound, its bytes in base64.
    #[must_use]
    pub fn audio(base64: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Audio { data: base64.into(), mime_type: mime_type.into(), annotations: None }
    }

    /// A link to a resource.
    #[must_use]
    pub fn link(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self::ResourceLink(ResourceLink {
            uri: uri.into(),
            name: name.into(),
            ..ResourceLink::default()
        })
    }

    /// The same block with annotations.
    #[must_use]
    pub fn annotated(mut self, new: Annotations) -> Self {
        let (Self::Text { annotations, .. }
        | Self::Image { annotations, .. }
        | Self::Audio { annotations, .. }
        | Self::ResourceLink(ResourceLink { annotations, .. })
        | Self::Resource { annotations, .. }) = &mut self;
        *annotations = Some(new);
        self
    }

    /// Why no client could use this block, if so.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        let (bytes, uri) = match self {
            Self::Text { .. } => return None,
            Self::Image { data, .. } | Self::Audio { data, .. } => (Some(data), None),
            Self::ResourceLink(link) => (None, Some(&link.uri)),
            Self::Resource { resource: EmbeddedResource::Text { uri, .. }, .. } => {
                (None, Some(uri))
            }
            Self::Resource { resource: EmbeddedResource::Blob { uri, blob, .. }, .. } => {
                (Some(blob), Some(uri))
            }
        };
        if bytes.is_some_and(|bytes| !is_base64(bytes)) {
            return Some("its bytes are not base64");
        }
        uri.is_some_and(|uri| !uri.contains(':')).then_some("its uri has no scheme")
    }

    /// Bytes that the block takes as JSON, but for escapes.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Text { text, .. } => text.len() + 28,
            Self::Image { data, .. } | Self::Audio { data, .. } => data.len() + 64,
            Self::ResourceLink(_) | Self::Resource { .. } => 256,
        }
    }

    /// Appends the block as JSON.
    pub(crate) fn write(&self, out: &mut String) -> serde_json::Result<()> {
        match self {
            // Nearly all are like this.
            Self::Text { text, annotations: None } => {
                out.push_str(r#"{"type":"text","text":"#);
                write_string(out, text);
                out.push('}');
            }
            Self::Text { .. }
            | Self::Image { .. }
            | Self::Audio { .. }
            | Self::ResourceLink(_)
            | Self::Resource { .. } => out.push_str(&serde_json::to_string(self)?),
        }
        Ok(())
    }
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn every_type_is_read_and_written() {
        for block in [
            json!({"type": "text", "text": "a"}),
            json!({"type": "text", "text": "a", "annotations": {"audience": ["user"], "priority": 0.5}}),
            json!({"type": "image", "data": "aGk=", "mimeType": "image/png"}),
            json!({"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}),
            json!({"type": "resource_link", "uri": "file:///a", "name": "a", "size": 7}),
            json!({"type": "resource", "resource": {"uri": "a:b", "text": "t"}}),
            json!({"type": "resource", "resource": {"uri": "a:b", "mimeType": "x/y", "blob": "aGk="}}),
        ] {
            let read: Content = serde_json::from_value(block.clone()).expect("a block");
            let mut written = String::new();
            read.write(&mut written).expect("it is JSON");
            assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON"), block);
            assert_eq!(read.flaw(), None, "{block}");
        }
    }

    #[test]
    fn unusable_blocks_are_noticed() {
        assert!(Content::image("no base64!", "image/png").flaw().is_some());
        assert!(Content::audio("abc", "audio/wav").flaw().is_some());
        assert!(Content::link("relative", "a").flaw().is_some());
        for bad in [json!({"type": "text"}), json!({"type": "video"}), json!("text")] {
            assert!(serde_json::from_value::<Content>(bad).is_err());
        }
    }
}
