//! A browser without script: keeps its cookie, sends the forms of the pages that it has seen.

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use serde_json::json;

use crate::fixture::World;

pub(crate) struct Visitor {
    client: reqwest::Client,
    pub admin: String,
    pub cookie: String,
}

pub(crate) struct Seen {
    pub status: u16,
    pub location: String,
    pub policy: String,
    pub html: String,
}

impl Visitor {
    pub(crate) fn new(world: &World) -> Visitor {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Visitor { client, admin: world.admin.clone(), cookie: String::new() }
    }

    /// Signed in with a link; as the holder of the admin token without a name.
    pub(crate) async fn signed_in(world: &World, user: Option<&str>) -> Visitor {
        let mut visitor = Visitor::new(world);
        let link = link(world, user).await;
        let seen = visitor.sign_in(&[("link", link.as_str()), ("next", "/")]).await;
        assert_eq!((seen.status, seen.location.as_str()), (303, "/"), "{}", seen.html);
        assert!(!visitor.cookie.is_empty());
        visitor
    }

    pub(crate) async fn sign_in(&mut self, form: &[(&str, &str)]) -> Seen {
        let request = self.client.post(format!("{}/sign-in", self.admin)).header("origin", &self.admin).form(form);
        let response = request.send().await.unwrap();
        if let Some(cookie) = response.headers().get(SET_COOKIE) {
            self.cookie = cookie.to_str().unwrap().split(';').next().unwrap().to_owned();
        }
        Seen::of(response).await
    }

    pub(crate) async fn get(&self, path: &str) -> Seen {
        let request = self.client.get(format!("{}{path}", self.admin)).header(COOKIE, &self.cookie);
        Seen::of(request.send().await.unwrap()).await
    }

    /// Sends a form with the token of this session.
    pub(crate) async fn send(&self, path: &str, form: &[(&str, &str)]) -> Seen {
        let token = self.form_token().await;
        let mut fields = form.to_vec();
        fields.push(("form_token", &token));
        self.send_raw(path, &fields, &self.admin).await
    }

    /// Sends a form as it stands, from a page of this origin.
    pub(crate) async fn send_raw(&self, path: &str, form: &[(&str, &str)], origin: &str) -> Seen {
        let request = self.client.post(format!("{}{path}", self.admin));
        let request = request.header(COOKIE, &self.cookie).header("origin", origin).form(form);
        Seen::of(request.send().await.unwrap()).await
    }

    pub(crate) async fn form_token(&self) -> String {
        self.get("/events").await.value_of("form_token")
    }
}

impl Seen {
    async fn of(response: reqwest::Response) -> Seen {
        let header = |name: &str| {
            response.headers().get(name).map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
        };
        let (location, policy) = (header(LOCATION.as_str()), header("content-security-policy"));
        Seen { status: response.status().as_u16(), location, policy, html: response.text().await.unwrap() }
    }

    /// Value of the first hidden field with this name.
    pub(crate) fn value_of(&self, name: &str) -> String {
        let mark = format!("name=\"{name}\" value=\"");
        let rest = self.html.split(&mark).nth(1).unwrap_or_else(|| panic!("no field {name} in {}", self.html));
        rest.split('"').next().unwrap().to_owned()
    }
}

/// The secret of a new sign-in link.
pub(crate) async fn link(world: &World, user: Option<&str>) -> String {
    let made = world.act("/api/v1/sign-in-links", json!({ "user": user, "actor": "root" })).await;
    assert_eq!(made.status, 200, "{}", made.body);
    made.body["path"].as_str().unwrap().strip_prefix("/sign-in?link=").unwrap().to_owned()
}
