"""What a person fills in to make and to connect an instance."""

from __future__ import annotations

import phonenumbers
from django import forms
from django.utils.translation import gettext_lazy as _

HOME = "BR"  # the country of a number written without one


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
