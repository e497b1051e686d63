//! Fields of an entry in a geo database.

use serde_json::{Map, Value};

use crate::event::scalar;
use crate::path::Path;

/// Names in the output, with the places where databases have them: MaxMind's own layout first, then the flat one of other
/// providers. `{}` is the language.
const FIELDS: [(&str, &[&str]); 10] = [
    ("continent", &["continent.code"]),
    ("country", &["country.iso_code", "registered_country.iso_code", "country_code", "country"]),
    ("country_name", &["country.names.{}", "registered_country.names.{}", "country_name"]),
    ("region", &["subdivisions[0].names.{}", "region"]),
    ("region_code", &["subdivisions[0].iso_code", "region_code"]),
    ("city", &["city.names.{}", "city"]),
    ("postal_code", &["postal.code", "postal_code"]),
    ("timezone", &["location.time_zone", "timezone"]),
    ("asn", &["autonomous_system_number", "asn"]),
    ("organization", &["autonomous_system_organization", "as_name"]),
];

/// Names of the fields that an entry may have.
pub fn geo_field_names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|(name, _)| *name)
}

/// The fields of an entry that are known; names are in this language, or in English if it has none.
pub fn geo_fields(entry: &Value, language: &str) -> Map<String, Value> {
    let at = |place: &str| Path::parse(place)?.find(entry).and_then(scalar).filter(|text| !text.is_empty());
    let find = |place: &&str| match place.contains("{}") {
        true => at(&place.replace("{}", language)).or_else(|| at(&place.replace("{}", "en"))),
        false => at(place),
    };
    let mut fields = Map::new();
    for (name, places) in FIELDS {
        let Some(text) = places.iter().find_map(find) else { continue };
        let number = || text.trim_start_matches("AS").parse::<u32>().ok();
        let value = match name {
            "asn" => number().map_or(Value::String(text.clone()), Value::from),
            _ => Value::String(text),
        };
        fields.insert(name.to_owned(), value);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn layouts_of_providers_give_the_same_fields() {
        let city = json!({
            "continent": {"code": "EU", "names": {"en": "Europe"}},
            "country": {"iso_code": "DE", "names": {"en": "Germany", "de": "Deutschland"}},
            "subdivisions": [{"iso_code": "BE", "names": {"en": "Berlin"}}],
            "city": {"names": {"en": "Berlin"}},
            "postal": {"code": "10115"},
            "location": {"time_zone": "Europe/Berlin", "latitude": 52.5},
        });
        let fields = geo_fields(&city, "de");
        assert_eq!(
            Value::Object(fields),
            json!({
                "continent": "EU", "country": "DE", "country_name": "Deutschland", "region": "Berlin",
                "region_code": "BE", "city": "Berlin", "postal_code": "10115", "timezone": "Europe/Berlin",
            })
        );
        let asn = json!({"autonomous_system_number": 64496, "autonomous_system_organization": "Example Net"});
        assert_eq!(Value::Object(geo_fields(&asn, "en")), json!({"asn": 64496, "organization": "Example Net"}));
        let flat = json!({"country": "DE", "city": "Berlin", "asn": "AS64496", "timezone": ""});
        assert_eq!(Value::Object(geo_fields(&flat, "en")), json!({"country": "DE", "city": "Berlin", "asn": 64496}));
        assert!(geo_fields(&json!(["nothing"]), "en").is_empty());
        assert!(geo_fields(&city, "]broken[").contains_key("city"), "a language that is none falls back to English");
    }
}
