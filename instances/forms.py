"""What a person fills in to make and to connect an instance."""

from __future__ import annotations

import phonenumbers
from django import forms
from django.utils.translation import gettext_lazy as _

HOME = "BR"  # the country of a number written without one
META_ID = r"^[0-9]{5,30}$"
DIGITS = forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"})


class NewInstanceForm(forms.Form):
    name = forms.SlugField(
        label=_("Name"), max_length=60, help_text=_("Letters, digits and hyphens, such as customer-service.")
    )


class NumberForm(forms.Form):
    """The number to connect by a code that is typed on the phone."""

    number = forms.CharField(label=_("Phone number"), max_length=30)
    number.widget.attrs.update({"type": "tel", "autocomplete": "tel", "placeholder": "+55 11 99999-0000"})

    def clean_number(self) -> str:
        """E.164."""
        try:
            number = phonenumbers.parse(self.cleaned_data["number"], HOME)
        except phonenumbers.NumberParseException:
            number = phonenumbers.PhoneNumber()
        if not phonenumbers.is_valid_number(number):
            raise forms.ValidationError(_("This is not a valid telephone number."))
        return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


class LinkNumberForm(forms.Form):
    """A number of the Cloud API, as Meta's dashboard shows it under "WhatsApp" → "API setup"."""

    name = forms.SlugField(label=_("Name"), max_length=60)
    phone_number_id = forms.RegexField(META_ID, label=_("Phone number ID"), widget=DIGITS)
    business_id = forms.RegexField(META_ID, label=_("WhatsApp Business account ID"), widget=DIGITS)
    token = forms.CharField(
        label=_("Access token"),
        max_length=500,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=_("A permanent one, of a system user that may send messages and manage the account."),
    )
    app_secret = forms.RegexField(
        r"^[0-9a-f]{32}$",
        label=_("App secret"),
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=_("Under “App settings” → “Basic”. It proves that a call is really Meta's."),
    )


class LinkInstagramForm(forms.Form):
    """An Instagram professional account, by its own login or by way of its Facebook page."""

    name = forms.SlugField(label=_("Name"), max_length=60)
    account_id = forms.RegexField(META_ID, label=_("Instagram account ID"), widget=DIGITS)
    page_id = forms.RegexField(
        META_ID,
        label=_("Facebook page ID"),
        widget=DIGITS,
        required=False,
        help_text=_(
            "Only when the account is reached through a page; leave it empty for Instagram's own login."
        ),
    )
    token = forms.CharField(
        label=_("Access token"), max_length=500, widget=forms.PasswordInput(attrs={"autocomplete": "off"})
    )
    app_secret = forms.RegexField(
        r"^[0-9a-f]{32}$",
        label=_("App secret"),
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=_("Under “App settings” → “Basic”. It proves that a call is really Meta's."),
    )


class TokenForm(forms.Form):
    """Another access token for a linked account."""

    token = forms.CharField(
        label=_("New access token"), max_length=500, widget=forms.PasswordInput(attrs={"autocomplete": "off"})
    )
